"""What one Whisper differs from another by."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WhisperConfig:
    """Sizes of a model; the contexts are the most positions of encoder and decoder."""

    mels: int
    width: int
    heads: int
    hidden: int
    """Channels inside the feed-forwards."""

    encoder_layers: int
    decoder_layers: int
    vocabulary: int
    encoder_context: int = 1500
    decoder_context: int = 448

    @property
    def head_width(self) -> int:
        """Channels of one attention head."""
        return self.width // self.heads


TINY_EN = WhisperConfig(
    mels=80,
    width=384,
    heads=6,
    hidden=1536,
    encoder_layers=4,
    decoder_layers=4,
    vocabulary=51864,
)
