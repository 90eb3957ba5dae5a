"""How an utterance is read: in which voice, how fast, how lively, how high.

The teacher reads a text in one way only. A prosody LM that learns from it has nothing to draw from:
at any temperature it says the same. So every text is read once for each voice, in a manner drawn at
random, and the LM learns all of them: the spread of a person who says a sentence twice.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from build.voice.makings import MAKINGS
from python_backends.speech import VOICES

_PACES: Final = (0.85, 1.18)
_PACE_SPREAD: Final = 0.07
_LIVELINESSES: Final = (0.5, 1.6)
_LIVELINESS_SPREAD: Final = 0.28
_REGISTERS: Final = (-0.6, 0.6)
_REGISTER_SPREAD: Final = 0.25
"""Spreads are standard deviations: of the logarithm of pace and liveliness, and of the register."""


@dataclass(frozen=True)
class Manner:
    """Of one reading."""

    voice: int
    """Place in VOICES."""

    pace: float
    """By the teacher's."""

    liveliness: float
    """How far F0 departs from the utterance's mean, by the teacher's."""

    register: float
    """By how much all of F0 is higher, in standard deviations of the voice's log F0."""

    def melody(self, melody: NDArray[np.float64], voiced: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Normalised log F0 [T] in this manner."""
        mean = melody[voiced].mean()
        return np.asarray(mean + self.register + self.liveliness * (melody - mean))


def manners(texts: int, seed: int) -> list[Manner]:
    """For each text one of each voice, in the order of the texts; depends only on the seed."""
    rng = np.random.default_rng(seed)
    return [_drawn(voice, rng) for _ in range(texts) for voice in range(len(VOICES))]


def _drawn(voice: int, rng: np.random.Generator) -> Manner:
    pace, liveliness, register = rng.standard_normal(3) * (
        _PACE_SPREAD,
        _LIVELINESS_SPREAD,
        _REGISTER_SPREAD,
    )
    making = MAKINGS[VOICES[voice]]
    return Manner(
        voice,
        making.pace * float(np.clip(np.exp(pace), *_PACES)),
        float(np.clip(np.exp(liveliness), *_LIVELINESSES)),
        float(np.clip(register, *_REGISTERS)),
    )
