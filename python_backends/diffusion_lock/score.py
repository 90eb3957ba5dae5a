"""What is to be spoken: phonemes with durations and pitch; and the key of a batch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from python_backends.diffusion_lock.frames import frame_positions
from python_backends.errors import InvalidInput
from python_backends.speech import FRAME_HZ, PHONEMES, PITCHES, SILENCE

BUCKET_FRAMES = 80
"""Pieces whose lengths lie in the same 80 frames may share a batch."""

LEAD_FRAMES = 6
"""Silence kept before a piece, 75 ms. The voice learnt to take a breath of some 350 ms, which a
caller hears as delay; it is decoded, since speech without it is worse, and left out."""


@dataclass(frozen=True)
class Key:
    """Everything that members of a locked batch must have in common."""

    frames: int
    """The longest that a member may be: a multiple of BUCKET_FRAMES, or the limit."""

    steps: int
    solver: str


@dataclass(frozen=True, eq=False)
class Score:
    """One piece as the flow decoder takes it: P phonemes, T frames."""

    phoneme: NDArray[np.int64]
    """[P]."""

    pitch: NDArray[np.int64]
    """[P], 0 unvoiced."""

    frame_phoneme: NDArray[np.int64]
    """[T]."""

    frame_position: NDArray[np.float32]
    """[T, 3]."""

    breath: int
    """Leading frames that are decoded but not spoken."""

    voice: int
    """Place of who speaks in VOICES."""

    stride: int
    """See `solver.stride`."""

    @property
    def frames(self) -> int:
        return len(self.frame_phoneme)

    def bucket(self, max_frames: int) -> int:
        """Its length, rounded up."""
        return min(-(-self.frames // BUCKET_FRAMES) * BUCKET_FRAMES, max_frames)


def to_score(prosody: NDArray[np.int32], max_frames: int, *, voice: int, stride: int) -> Score:
    """PROSODY [1, P, 3] (phoneme, frames, pitch token), checked. Raises InvalidInput."""
    if prosody.ndim != 3 or prosody.shape[0] != 1 or prosody.shape[2] != 3:
        raise InvalidInput(f"PROSODY has shape {list(prosody.shape)}; [1, P, 3] is accepted")
    if not prosody.shape[1]:
        raise InvalidInput("PROSODY has no phonemes; a piece without sound says so by flag 4")
    phoneme, duration, pitch = prosody[0].T.astype(np.int64)
    _within("phoneme", phoneme, PHONEMES - 1)
    _within("pitch", pitch, PITCHES - 1)
    _within("duration", duration, max_frames)
    frames = int(duration.sum())
    if not 0 < frames <= max_frames:
        raise InvalidInput(
            f"PROSODY lasts {frames / FRAME_HZ:.2f} s; a piece of more than 0 and at most "
            f"{max_frames / FRAME_HZ:g} s is accepted"
        )
    lead = int(duration[0]) if phoneme[0] == SILENCE and len(phoneme) > 1 else 0
    breath = max(0, lead - LEAD_FRAMES)
    return Score(phoneme, pitch, *frame_positions(duration), breath, voice, stride)


def _within(name: str, values: NDArray[np.int64], high: int) -> None:
    if values.min() < 0 or values.max() > high:
        raise InvalidInput(
            f"PROSODY has a {name} of {values.min()} to {values.max()}; 0 to {high} is accepted"
        )
