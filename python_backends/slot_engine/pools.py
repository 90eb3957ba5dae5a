"""Memory of a slot-pool engine: one row per slot in every pool, at addresses that never change.

ONNX Runtime holds raw pointers into these arrays, so they are never reallocated. The length axis is
always the last but one.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shapes = Mapping[str, tuple[int, ...]]
NamedPools = dict[str, NDArray[np.float32]]


class ContextPools:
    """What rows are conditioned on: pools [slots, ..., width, D], zeroed, a set for each width.

    ONNX Runtime's Attention computes a pool to its full width, however little of it is valid, so a
    step runs on the narrowest set that its rows fit. A row is written there; a wider set gets a
    copy when a step needs the row beside a longer one. Until then it takes no memory but addresses.
    """

    def __init__(self, slots: int, sets: Mapping[int, Shapes]) -> None:
        self.pools = {width: _zeros(sets[width]) for width in sorted(sets)} or {0: {}}
        self.length = np.zeros(slots, np.int64)
        """Valid length of each row."""

        self._held = {width: np.zeros(slots, np.bool_) for width in self.pools}

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return sum(pool.nbytes for pools in self.pools.values() for pool in pools.values())

    def fill(self, row: int, values: Mapping[str, NDArray[Any]]) -> None:
        """Write a row, values [..., length, D] of every pool; ValueError if it is too long."""
        length = next(iter(values.values())).shape[-2]
        width = self._narrowest(length)
        for name, value in values.items():
            self.pools[width][name][row, ..., :length, :] = value
        self._settle(row, width, length)

    def move(self, source: int, target: int) -> None:
        """Copy a row over another one."""
        length = int(self.length[source])
        width = self._narrowest(length)
        self._copy((width, source), (width, target), length)
        self._settle(target, width, length)

    def width_of(self, first: int, count: int) -> int:
        """The narrowest width that rows first..first+count-1 fit; they are all there afterwards."""
        rows = slice(first, first + count)
        width = self._narrowest(int(self.length[rows].max()))
        for row in np.flatnonzero(~self._held[width][rows]):
            self._widen(first + int(row), width)
        return width

    def scrub(self, row: int) -> None:
        """Zero a row, whatever holds it."""
        for pools in self.pools.values():
            for pool in pools.values():
                pool[row] = 0

    def _narrowest(self, length: int) -> int:
        for width in self.pools:
            if length <= width:
                return width
        raise ValueError(f"context of length {length}; at most {max(self.pools)} fits")

    def _widen(self, row: int, width: int) -> None:
        length = int(self.length[row])
        self._copy((self._narrowest(length), row), (width, row), length)
        self._held[width][row] = True

    def _copy(self, source: tuple[int, int], target: tuple[int, int], length: int) -> None:
        """Copy `length` of one (width, row) to another."""
        (wide, row), (other, onto) = source, target
        for name, pool in self.pools[wide].items():
            self.pools[other][name][onto, ..., :length, :] = pool[row, ..., :length, :]

    def _settle(self, row: int, width: int, length: int) -> None:
        """The row is in one set alone now."""
        for held in self._held.values():
            held[row] = False
        self._held[width][row] = True
        self.length[row] = length


class Pools:
    """KV pools [slots, heads, capacity, D], zeroed, and the context pools beside them."""

    def __init__(self, kv: Shapes, context: Mapping[int, Shapes]) -> None:
        self.kv = _zeros(kv)
        slots = next(iter(self.kv.values())).shape[0]
        self.context = ContextPools(slots, context)

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return sum(pool.nbytes for pool in self.kv.values()) + self.context.nbytes

    @property
    def token_bytes(self) -> int:
        """Bytes of KV that one token of one row takes."""
        return sum(pool[0, :, :1].nbytes for pool in self.kv.values())

    def copied(self, row: int, length: int) -> NamedPools:
        """The first `length` tokens of a row: [heads, length, D] each."""
        return {name: pool[row, :, :length].copy() for name, pool in self.kv.items()}

    def paste(self, held: Mapping[str, NDArray[Any]], row: int, length: int) -> None:
        """Write the first `length` tokens of what `copied` gave into a row."""
        for name, pool in self.kv.items():
            pool[row, :, :length] = held[name][:, :length]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of a row, and its context, over another row."""
        for pool in self.kv.values():
            pool[target, :, :length] = pool[source, :, :length]
        self.context.move(source, target)

    def scrub(self, row: int) -> None:
        """Zero a row whose numbers became non-finite: 0 * NaN would poison its next user."""
        for pool in self.kv.values():
            pool[row] = 0
        self.context.scrub(row)


def _zeros(shapes: Shapes) -> NamedPools:
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
