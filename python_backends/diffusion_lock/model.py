"""The model `acoustic`: phonemes with prosody to acoustic frames, in locked batches."""

from python_backends.bridge import Loop, ModelConfig, StageBackend, call
from python_backends.diffusion_lock.loop import AcousticLoop
from python_backends.diffusion_lock.settings import AcousticSettings
from python_backends.diffusion_lock.source import Voice


class TritonPythonModel(StageBackend):
    """Loaded by Triton."""

    def make_loop(self, config: ModelConfig) -> Loop:
        """The loop that owns the flow decoder's queue."""
        voice = Voice.load(config.artefact("speech.json"))
        return AcousticLoop(config.settings(AcousticSettings), voice, call)
