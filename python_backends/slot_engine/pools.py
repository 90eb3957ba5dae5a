"""Memory of a slot-pool engine: one row per slot in every pool, at addresses that never change.

Whoever computes holds raw pointers into these arrays, so they are never reallocated. The length
axis is always the last but one. They are NumPy arrays, or tensors on a device: see Memory.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Shapes = Mapping[str, tuple[int, ...]]
NamedPools = dict[str, Any]

TOKENS = "tokens"
"""Among what is set aside of a row: the tokens it holds."""


class Memory(Protocol):
    """Where pools lie."""

    def zeros(self, name: str, shape: tuple[int, ...]) -> Any:
        """A pool."""

    def tokens(self, shape: tuple[int, ...]) -> Any:
        """Zeros, int64."""

    def copy(self, view: Any) -> Any:
        """Of a part of a pool, to set aside."""

    def borrowed(self, held: Any) -> Any:
        """What was set aside, perhaps by another engine, to read from."""

    def given(self, values: NDArray[Any]) -> Any:
        """An array of the host, to write into a pool."""


class HostMemory:
    """NumPy's, fp32."""

    def zeros(self, name: str, shape: tuple[int, ...]) -> Any:
        """See Memory."""
        return np.zeros(shape, np.float32)

    def tokens(self, shape: tuple[int, ...]) -> Any:
        """See Memory."""
        return np.zeros(shape, np.int64)

    def copy(self, view: Any) -> Any:
        """See Memory."""
        return view.copy()

    def borrowed(self, held: Any) -> Any:
        """See Memory."""
        return held

    def given(self, values: NDArray[Any]) -> Any:
        """See Memory."""
        return values


class ContextPools:
    """What rows are conditioned on: pools [slots, ..., width, D], zeroed, a set for each width.

    ONNX Runtime's Attention computes a pool to its full width, however little of it is valid, so a
    step runs on the narrowest set that its rows fit. A row is written there; a wider set gets a
    copy when a step needs the row beside a longer one. Until then, on a host, it takes no memory
    but addresses.
    """

    def __init__(self, slots: int, sets: Mapping[int, Shapes], memory: Memory) -> None:
        self.pools = {width: _zeros(sets[width], memory) for width in sorted(sets)} or {0: {}}
        self._memory = memory
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
            self.pools[width][name][row, ..., :length, :] = self._memory.given(value)
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
    """KV pools [slots, heads, capacity, D], zeroed, the context pools beside them, and `tokens`
    [slots, capacity, width]: what each row holds; beyond a row's length it is anybody's."""

    def __init__(
        self, kv: Shapes, context: Mapping[int, Shapes], width: int, memory: Memory
    ) -> None:
        self._memory = memory
        self.kv = _zeros(kv, memory)
        slots, _, capacity, _ = next(iter(kv.values()))
        self.tokens = memory.tokens((slots, capacity, width))
        self.context = ContextPools(slots, context, memory)

    @property
    def nbytes(self) -> int:
        """Bytes of KV and context."""
        return sum(int(pool.nbytes) for pool in self.kv.values()) + self.context.nbytes

    @property
    def token_bytes(self) -> int:
        """Bytes of KV that one token of one row takes."""
        return sum(int(pool[0, :, :1].nbytes) for pool in self.kv.values())

    def copied(self, row: int, length: int) -> NamedPools:
        """The first `length` tokens of a row: [heads, length, D] each, and the tokens."""
        held = {name: self._memory.copy(pool[row, :, :length]) for name, pool in self.kv.items()}
        return held | {TOKENS: self._memory.copy(self.tokens[row, :length])}

    def paste(self, held: Mapping[str, Any], row: int, length: int) -> None:
        """Write the first `length` tokens of what `copied` gave into a row."""
        for name, pool in self.kv.items():
            pool[row, :, :length] = self._memory.borrowed(held[name])[:, :length]
        self.tokens[row, :length] = self._memory.borrowed(held[TOKENS])[:length]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of a row, and its context, over another row."""
        for pool in self.kv.values():
            pool[target, :, :length] = pool[source, :, :length]
        self.tokens[target, :length] = self.tokens[source, :length]
        self.context.move(source, target)

    def scrub(self, row: int) -> None:
        """Zero a row whose numbers became non-finite: 0 * NaN would poison its next user."""
        for pool in self.kv.values():
            pool[row] = 0
        self.context.scrub(row)


OpenShapes = Mapping[str, Sequence[Any]]
"""Inputs of a graph; dimensions that vary are anything but a positive number."""


def pool_shapes(
    inputs: OpenShapes, *, slots: int, capacity: int, context: Sequence[str], widths: Sequence[int]
) -> tuple[Shapes, dict[int, Shapes]]:
    """Shapes of the KV pools of a step graph, and of its context pools by width.

    Open lengths become `capacity`, or each of `widths`. ValueError where there is no room.
    """
    named = [name for name in inputs if name[0] in "kv" and name[1:].isdigit()]
    if context and _is_fixed(fixed := inputs[context[0]][-2]):
        widths = [fixed]
    if context and not widths:
        raise ValueError(f"{context[0]} may have any width, and generation.json names none")

    def shape(name: str, length: int) -> tuple[int, ...]:
        dims = [slots, *inputs[name][1:]]
        if not _is_fixed(dims[-2]):
            dims[-2] = length
        if dims[-2] < length:
            raise ValueError(f"capacity {length}, but the graph has room for {dims[-2]}")
        return tuple(int(dim) for dim in dims)

    kv = {name: shape(name, capacity) for name in named if name not in context}
    return kv, {width: {name: shape(name, width) for name in context} for width in widths}


def present_of(pool: str) -> str:
    """The output of a step graph that is its KV pool with the step's tokens: ko3 of k3."""
    return f"{pool[0]}o{pool[1:]}"


def _is_fixed(dim: Any) -> bool:
    return isinstance(dim, int) and dim > 0


def _zeros(shapes: Shapes, memory: Memory) -> NamedPools:
    return {name: memory.zeros(name, shape) for name, shape in shapes.items()}
