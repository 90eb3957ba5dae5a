"""The model `acoustic`: phonemes with prosody to acoustic frames, locked or interleaved."""

from python_backends.bridge import Loop, ModelConfig, StageBackend, call, plugin
from python_backends.diffusion_lock.loop import AcousticLoop
from python_backends.diffusion_lock.settings import AcousticSettings
from python_backends.diffusion_lock.source import load_voices


class TritonPythonModel(StageBackend):
    """Loaded by Triton."""

    def make_loop(self, config: ModelConfig) -> Loop:
        """The loop that owns the flow decoder's queue."""
        settings = config.settings(AcousticSettings)
        if settings.leaf:
            voices, emulated = plugin.load(settings.leaf)(config, settings)
            return AcousticLoop(settings, voices, emulated, meters=self.meters)
        voices = load_voices(config.artefact("speech.json"))
        return AcousticLoop(settings, voices, call, meters=self.meters)
