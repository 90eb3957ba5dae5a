"""The last of a caller's sound, by position."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Tape:
    """Positions are samples from the beginning of the call, whatever has been forgotten."""

    def __init__(self) -> None:
        self._blocks: deque[Floats] = deque()
        self.begin = 0
        self.end = 0
        """What lies between is kept."""

    def append(self, sound: Floats) -> None:
        """The sound goes on."""
        if sound.size:
            self._blocks.append(sound)
            self.end += sound.size

    def cut(self, begin: int, end: int) -> Floats:
        """A copy of what is kept from `begin` to `end`."""
        first, last = max(begin, self.begin), min(end, self.end)
        if first >= last:
            return np.zeros(0, np.float32)
        parts, at = [], self.begin
        for block in self._blocks:
            if at + block.size > first and at < last:
                parts.append(block[max(0, first - at) : last - at])
            at += block.size
        return np.concatenate(parts)

    def forget(self, before: int) -> None:
        """Keep no more than what lies behind; a block is given up as a whole."""
        while self._blocks and self.begin + self._blocks[0].size <= before:
            self.begin += self._blocks.popleft().size

    def check_integrity(self) -> None:
        """Positions and blocks agree."""
        assert self.end - self.begin == sum(block.size for block in self._blocks)
