"""The model `encode`: sound to hidden states, batched by a conditional window."""

from python_backends.bridge import Board, Loop, ModelConfig, StageBackend, call, plugin
from python_backends.encoder_window.loop import EncodeLoop
from python_backends.encoder_window.settings import EncodeSettings
from python_backends.encoder_window.whisper import Whisper


class TritonPythonModel(StageBackend):
    """Loaded by Triton."""

    def make_loop(self, config: ModelConfig) -> Loop:
        """The loop that owns the encoder's queue."""
        settings = config.settings(EncodeSettings)
        make = plugin.load(settings.leaf) if settings.leaf else None
        leaf = make(config, settings) if make else Whisper(settings, call)
        loop = EncodeLoop(settings, leaf, streams=Board().streams, meters=self.meters)
        self.usage = loop.usage
        return loop
