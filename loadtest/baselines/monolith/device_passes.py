"""A rule's work on the emulated device."""

from loadtest.baselines.monolith.turns import Work
from loadtest.device import Emulation, Pass


class DevicePasses:
    """Asks the device `monolith` for passes at the profile's costs."""

    def __init__(self, emulation: Emulation) -> None:
        self._device = emulation.device("monolith")
        self._stages = emulation.profile.stages
        delays = emulation.delays
        self._extra_ms = {
            "listen": delays.encoder_pass_ms,
            "think": delays.think_step_ms,
            "speak": delays.speak_step_ms,
            "acoustic": delays.acoustic_step_ms,
        }

    def order(self, work: Work) -> Pass:
        """Submit a pass; returns at once, when it will have started and ended."""
        members = len(work.rows)
        cost_ms = self._stages[work.stage].cost_ms.ms(members) * work.factor
        extra_ms = self._extra_ms.get(work.stage, 0.0)
        return self._device.reserve(work.stage, members, cost_ms + extra_ms)
