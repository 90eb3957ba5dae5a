"""The model `encode`: sound to hidden states, batched by a conditional window."""

from python_backends.bridge import Loop, ModelConfig, StageBackend, call
from python_backends.encoder_window.loop import EncodeLoop
from python_backends.encoder_window.settings import EncodeSettings


class TritonPythonModel(StageBackend):
    """Loaded by Triton."""

    def make_loop(self, config: ModelConfig) -> Loop:
        """The loop that owns the encoder's queue."""
        return EncodeLoop(config.settings(EncodeSettings), call)
