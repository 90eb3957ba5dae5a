"""What is said of a voice without a clock: words misheard, and how far two sounds are apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import jiwer
import numpy as np
from numpy.typing import NDArray

from client.audio import HEARD_RATE_HZ, resample
from client.wer import words
from python_backends.encoder_window.mel import FRAME_HZ, log_mel

DB_PER_UNIT = 40.0
"""Of Whisper's log mel: (log10 of power + 4) / 4."""

UNSEEN = Path(__file__).parents[2] / "weights" / "voice" / "unseen.txt"
TIMED_SENTENCES = 40
"""A bench speaks the first of them; `make eval` all."""


@dataclass(frozen=True)
class Heard:
    """One sentence, and what a listener made of it."""

    said: str
    heard: str

    @property
    def expected(self) -> list[str]:
        """Words that were to be heard; at least one."""
        return words(self.said)

    @property
    def errors(self) -> int:
        """Words substituted, deleted and inserted; numbers are compared as they are spoken."""
        compared = jiwer.process_words(" ".join(self.expected), " ".join(words(self.heard)))
        return int(compared.substitutions + compared.deletions + compared.insertions)


def sentences() -> list[str]:
    """Some of those that no trainer of the voice has seen."""
    return UNSEEN.read_text("utf-8").splitlines()[:TIMED_SENTENCES]


def word_error_rate(heard: Sequence[Heard]) -> float:
    """Over all sentences together: a short one weighs less than a long one."""
    return sum(one.errors for one in heard) / sum(len(one.expected) for one in heard)


def misheard(heard: Sequence[Heard]) -> list[dict[str, str]]:
    """Where a word was wrong, for readers."""
    return [{"said": one.said, "heard": one.heard} for one in heard if one.errors]


def distance_db(one: NDArray[np.float32], other: NDArray[np.float32], rate_hz: int) -> float:
    """Log-spectral distance of two sounds [n] that say the same at the same time, in dB.

    Per frame of 10 ms the root of the mean square over 80 mel bands, then the mean over frames;
    what is 80 dB below a sound's peak counts as silence. ValueError when lengths differ.
    """
    if one.shape != other.shape:
        raise ValueError(f"sounds of {one.shape} and {other.shape} samples do not run in parallel")
    spectra = [_mel(sound, rate_hz) for sound in (one, other)]
    squares = np.square(DB_PER_UNIT * (spectra[0] - spectra[1]))
    return fmean(np.sqrt(squares.mean(axis=0)).tolist())


def _mel(sound: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    """[80, frames]."""
    heard = resample(sound, rate_hz, HEARD_RATE_HZ)
    return log_mel(heard, -(-len(heard) * FRAME_HZ // HEARD_RATE_HZ))
