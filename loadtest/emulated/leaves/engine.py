"""The step engine of emulated AR stages: one command is one pass of the device."""

from collections.abc import Mapping

import numpy as np

from loadtest.device import Device, Emulation, Pass
from loadtest.device.sleep import sleep_ms
from python_backends.ar_loop.settings import LoopSettings
from python_backends.bridge import ModelConfig
from python_backends.slot_engine.command import Command, Drawn, Result, Tokens

WIDTH = 2
"""Numbers per token: a token is the pass that drew it, (submitted_ns, end_ns)."""
NOBODY: Mapping[str, float] = {}


class DeviceEngine:
    """Computes for `stage`; `extra_ms` a pass on the device, `gap_ms` before it on the host.

    `others`: passes of other stages (ms each) that take the device in front of every prompt.
    """

    def __init__(
        self,
        device: Device,
        emulation: Emulation,
        stage: str,
        *,
        extra_ms: float = 0.0,
        others: Mapping[str, float] = NOBODY,
    ) -> None:
        self._device = device
        self._stage = stage
        self._cost = emulation.profile.stages[stage].cost_ms
        self._gap_ms = emulation.delays.step_gap_ms
        self._extra_ms = extra_ms
        self._others = {other: ms for other, ms in others.items() if ms}

    def run(self, command: Command) -> Result:
        """See StepEngine. A prompt is one token, so its prefill is a row of the same step."""
        rows = 0 if command.decode is None else len(command.decode.tokens)
        members = rows + (command.prefill is not None) + len(command.joins)
        sleep_ms(self._gap_ms)
        if command.prefill is not None:
            for other, ms in self._others.items():
                self._device.reserve(other, 1, ms)
        cost_ms = self._cost.ms(members) + self._extra_ms
        done = self._device.run(self._stage, members, cost_ms)
        prefill = None if command.prefill is None else _drawn(done, 1)
        joins = tuple(_drawn(done, 1) for _ in command.joins)
        return Result(prefill, _drawn(done, rows) if rows else None, joins=joins)


def load(config: ModelConfig, settings: LoopSettings) -> DeviceEngine:
    """The engine of an `emu_<stage>` or `emu_<stage>_...` model."""
    emulation, stage = Emulation.load(), stage_of(config.stage)
    delays = emulation.delays
    extra = {"think": delays.think_step_ms, "speak": delays.speak_step_ms}
    others = {"listen": delays.others_encoder_ms, "speak": delays.others_steps_ms}
    return DeviceEngine(
        emulation.device(stage),
        emulation,
        stage,
        extra_ms=extra[stage],
        others=others if stage == "think" else NOBODY,
    )


def stage_of(model: str) -> str:
    """The profile's name of a model's stage: emu_think_pieces is a "think"."""
    return model.split("_")[1]


def _drawn(done: Pass, rows: int) -> Drawn:
    token: Tokens = np.array([[done.submitted_ns, done.end_ns]], np.int64)
    return Drawn(np.repeat(token, rows, axis=0), np.zeros(rows, np.float32))
