"""Parameters of the model `encode`."""

import math
from dataclasses import dataclass

from python_backends.scheduling.stall import StallBudget
from python_backends.scheduling.window import Cost
from python_backends.sizes import RowBytes


@dataclass(frozen=True)
class EncodeSettings:
    """Read from config.pbtxt, strictly."""

    encoder_model: str
    window_ms: float
    """The longest that a ready window waits for another one that is being built."""

    max_batch: int
    max_audio_s: float
    build_workers: int
    """Threads that make mel spectrograms."""

    max_waiting: int
    """Open requests beyond which new ones are refused."""

    max_stall_ms: float = 0.0
    """The longest that a pass may hold up streams on the same device; 0: as long as it takes."""

    gather_ms: float = 0.0
    """How long a ready window waits for running streams to end, so that many start together."""

    max_batch_frames: int = 0
    """Mel frames, padding included, that one pass may have; 0: as many as max_batch brings."""

    max_batch_bytes: int = 0
    """Bytes that one pass may take; 0: as many as max_batch brings."""

    row_bytes: str = ""
    """What a window takes of a pass by its frames, the encoder's share included:
    "1500=32MiB, 3000=160MiB". Empty: the bytes of its features and states."""

    mels: int = 80
    """Mel filters: the channels of MEL."""

    width: int = 384
    """Channels of HIDDEN."""

    share_identical: bool = True
    """Windows that sound alike are encoded once while the first of them is under way."""

    leaf: str = ""
    """Another encoder than Whisper: "module:factory", called with (ModelConfig, these settings)."""

    @property
    def stall_budget(self) -> StallBudget | None:
        """A new one; None when passes may take as long as they take."""
        if not self.max_stall_ms:
            return None
        return StallBudget(self.max_stall_ms / 1000, gather_s=self.gather_ms / 1000)

    @property
    def cap(self) -> Cost:
        """What one pass may cost."""
        return Cost(self.max_batch_frames or math.inf, self.max_batch_bytes or math.inf)

    def __post_init__(self) -> None:
        RowBytes.read(self.row_bytes)
        if min(self.max_batch, self.build_workers, self.max_waiting, self.mels, self.width) < 1:
            raise ValueError(
                "max_batch, build_workers, max_waiting, mels and width must be at least 1"
            )
        if min(self.max_batch_frames, self.max_batch_bytes) < 0:
            raise ValueError("max_batch_frames and max_batch_bytes must not be negative")
        if min(self.window_ms, self.max_stall_ms, self.gather_ms) < 0 or self.max_audio_s <= 0:
            raise ValueError("times in ms must not be negative, max_audio_s must be positive")
        if self.gather_ms and not self.max_stall_ms:
            raise ValueError("gather_ms is part of the stall budget: max_stall_ms must be set too")
