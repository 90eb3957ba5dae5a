"""Noise that depends on the seed and the piece alone: not on the batch, its padding, or the chunks.

Philox (Salmon et al. 2011) is a counter-based generator: (seed, piece) is its key, and the highest
word of the counter keeps the streams apart.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Stream(IntEnum):
    """What the noise is for."""

    FLOW = 0
    VOCODER = 1


def normal(seed: int, piece: int, stream: Stream, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Standard normal values of `shape`, row by row: fewer rows are a prefix of more rows."""
    bits = np.random.Philox(
        key=np.array([seed, piece], np.uint64), counter=np.array([0, 0, 0, stream], np.uint64)
    )
    return np.random.Generator(bits).standard_normal(shape, np.float32)
