"""Triton model class of the monolith, on the emulated device."""

from loadtest.baselines.monolith import rules
from loadtest.baselines.monolith.device_passes import DevicePasses
from loadtest.baselines.monolith.loop import MonolithLoop
from loadtest.baselines.monolith.settings import MonolithSettings
from loadtest.device import Emulation, SpanLog
from python_backends.bridge import Loop, ModelConfig, StageBackend


class TritonPythonModel(StageBackend):
    """Loaded by Triton."""

    def make_loop(self, config: ModelConfig) -> Loop:
        """The loop, as the emulation file and the parameters say."""
        settings = config.settings(MonolithSettings)
        emulation = Emulation.load()
        rule = rules.make(settings.rule, emulation.profile, emulation.piece_steps, settings.limits)
        spans = SpanLog(emulation.spans, "monolith")
        return MonolithLoop(rule, DevicePasses(emulation), settings, emulation.gap_ms, spans)
