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
            voices, called = plugin.load(settings.leaf)(config, settings)
        else:
            voices, called = load_voices(config.artefact("speech.json")), call
        loop = AcousticLoop(settings, voices, called, meters=self.meters)
        self.usage = loop.usage
        return loop
