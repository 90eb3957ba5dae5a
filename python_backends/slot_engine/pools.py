"""Memory of a slot-pool engine: one row per slot in every pool, at addresses that never change."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Pools:
    """KV pools [slots, heads, capacity, D] and context pools [slots, ..., length, D], zeroed.

    The length axis is always the last but one. ONNX Runtime holds raw pointers into these arrays,
    so they are never reallocated.
    """

    def __init__(self, kv: Mapping[str, tuple[int, ...]], context: Mapping[str, tuple[int, ...]]):
        self.kv = {name: np.zeros(shape, np.float32) for name, shape in kv.items()}
        self.context = {name: np.zeros(shape, np.float32) for name, shape in context.items()}
        slots = next(iter(self.kv.values())).shape[0]
        self.context_length = np.zeros(slots, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return sum(pool.nbytes for pool in (*self.kv.values(), *self.context.values()))

    def fill(self, row: int, name: str, values: NDArray[Any]) -> None:
        """Write a row's context; ValueError if it is longer than the pool."""
        pool, length = self.context[name], values.shape[-2]
        if length > pool.shape[-2]:
            raise ValueError(f"context of length {length}; at most {pool.shape[-2]} fits")
        pool[row, ..., :length, :] = values
        self.context_length[row] = length

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of a row, and its context, over another row."""
        for pool in self.kv.values():
            pool[target, :, :length] = pool[source, :, :length]
        held = self.context_length[source]
        for pool in self.context.values():
            pool[target, ..., :held, :] = pool[source, ..., :held, :]
        self.context_length[target] = held

    def scrub(self, row: int) -> None:
        """Zero a row whose numbers became non-finite: 0 * NaN would poison its next user."""
        for pool in (*self.kv.values(), *self.context.values()):
            pool[row] = 0
