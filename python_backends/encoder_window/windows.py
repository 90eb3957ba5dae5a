"""Sound of any length as windows that the encoder can take."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from python_backends.encoder_window.audio import SAMPLE_RATE_HZ, is_silent, is_tone
from python_backends.scheduling.window import Cost

LIMIT = 30 * SAMPLE_RATE_HZ
"""Samples of the longest window."""

SEARCH = 5 * SAMPLE_RATE_HZ
"""How far before the limit a quiet place is looked for."""

PAUSE_BLOCKS = 10
BLOCK = SAMPLE_RATE_HZ // 100
"""A pause is 0.1 s: 10 blocks of 10 ms."""

SHORT_FRAMES, LONG_FRAMES = 1500, 3000
"""Mel frames of the two shape buckets. Fewer than 1500 make the decoder loop (facts/weights.md)."""

SHORT_SAMPLES = int(14.5 * SAMPLE_RATE_HZ)
"""The most sound in the short bucket; half a second of silence shows the decoder the end."""

FRAMES_PER_STATE = 2
SAMPLED = 64
"""Samples by which sounds are told apart before they are compared."""


def bytes_a_frame(mels: int, width: int) -> int:
    """Of the log-mel that goes into a pass and the states that come out of it, float32."""
    return 4 * (mels + width // FRAMES_PER_STATE)


@dataclass(frozen=True, eq=False)
class Identity:
    """Equal for equal samples that are padded to equal frames. Sounds that look alike are compared
    sample by sample, so that no two callers can be mistaken for each other."""

    sound: NDArray[np.float32]
    frames: int

    def __hash__(self) -> int:
        some = self.sound[:: max(1, len(self.sound) // SAMPLED)]
        return hash((self.frames, len(self.sound), *some.tolist()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identity) or self.frames != other.frames:
            return False
        return np.array_equal(self.sound, other.sound)


@dataclass(frozen=True, eq=False)
class Window:
    """Samples [start, end) of a clip, and how they will be encoded."""

    sound: NDArray[np.float32]
    start: int
    end: int
    frames: int
    """Mel frames it is padded to, its shape bucket."""

    silent: bool
    """Silent windows, and those of nothing but steady tones, are not encoded."""

    frame_bytes: int
    """See `bytes_a_frame`."""

    @property
    def bucket(self) -> int:
        """Its shape."""
        return self.frames

    @property
    def states(self) -> int:
        """Encoder states that come out."""
        return 0 if self.silent else self.frames // FRAMES_PER_STATE

    @property
    def cost(self) -> Cost:
        """Frames it is padded to, and the bytes of its features and states."""
        return Cost(self.frames, self.frames * self.frame_bytes)

    @property
    def identity(self) -> Identity:
        """What its states depend on; where in a clip it lies is no part of it."""
        return Identity(self.sound, self.frames)

    @property
    def span_ms(self) -> tuple[int, int]:
        """Where in the clip it lies."""
        per_ms = SAMPLE_RATE_HZ / 1000
        return round(self.start / per_ms), round(self.end / per_ms)


def to_windows(sound: NDArray[np.float32], min_frames: int, frame_bytes: int = 0) -> list[Window]:
    """Windows that cover `sound` [n], in order; each is padded to at least `min_frames`, and takes
    `frame_bytes` for each of its frames."""
    return [_window(sound, span, min_frames, frame_bytes) for span in split(sound)]


def split(sound: NDArray[np.float32]) -> list[tuple[int, int]]:
    """Spans of at most 30 s, cut at the quietest 0.1 s of the last 5 s before the limit."""
    spans = []
    start = 0
    while len(sound) - start > LIMIT:
        cut = _quietest(sound, start + LIMIT - SEARCH, start + LIMIT)
        spans.append((start, cut))
        start = cut
    return [*spans, (start, len(sound))]


def _quietest(sound: NDArray[np.float32], low: int, high: int) -> int:
    """The middle of the quietest 0.1 s in [low, high); of several equal ones, the last."""
    energies = (sound[low:high].astype(np.float64).reshape(-1, BLOCK) ** 2).sum(axis=1)
    pauses = np.lib.stride_tricks.sliding_window_view(energies, PAUSE_BLOCKS).sum(axis=1)
    first_block = len(pauses) - 1 - int(pauses[::-1].argmin())
    return low + (first_block + PAUSE_BLOCKS // 2) * BLOCK


def _window(
    sound: NDArray[np.float32], span: tuple[int, int], min_frames: int, frame_bytes: int
) -> Window:
    start, end = span
    short = end - start <= SHORT_SAMPLES and min_frames <= SHORT_FRAMES
    part = sound[start:end]
    silent = is_silent(part) or is_tone(part)
    frames = SHORT_FRAMES if short else LONG_FRAMES
    return Window(part, start, end, frames, silent, frame_bytes)
