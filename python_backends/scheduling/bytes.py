"""One device's bytes, shared out: every holder has a budget of its own, in bytes.

A holder is whatever takes bytes under one name: a stage, or a part of it (`think.kv`). It takes
them before it uses them, at the most that they can become, and gives them back when it is done: an
encoder for a pass, by bucket and batch; an autoregressive stage for a sequence, with all the tokens
it may grow to; diffusion for a batch, until its last step; weights once. So nobody who was let in
runs out of bytes half way, and whoever would exceed a budget is refused at nobody else's expense.
"""

import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

H = TypeVar("H", bound=Hashable)

BATCH: Final = "batch"
UNBOUNDED: Final = sys.maxsize
"""A budget that nobody reaches: what is used of it is known all the same."""


@dataclass(eq=False)
class OverBudget(Exception):
    """Refused: `free` bytes are left of the holder's own budget of `declared`."""

    holder: Hashable
    asked: int
    free: int
    declared: int

    def __str__(self) -> str:
        return (
            f"{self.holder}: {self.asked} bytes are needed, {self.free} of {self.declared} are free"
        )

    @property
    def never_fits(self) -> bool:
        """Waiting does not help."""
        return self.asked > self.declared


@dataclass(frozen=True)
class Usage:
    """A holder's bytes: what it declared, what it has now, and the most it ever had."""

    declared: int
    used: int
    peak: int


class ByteBudget(Generic[H]):
    """`total` bytes of a device, and of them what each holder has `declared`.

    ValueError when they do not fit, with every holder's bytes.
    """

    def __init__(self, total: int, declared: Mapping[H, int]) -> None:
        if min(total, *declared.values(), 0) < 0:
            raise ValueError(f"bytes must not be negative: {total} for {dict(declared)}")
        if sum(declared.values()) > total:
            each = ", ".join(f"{holder} {nbytes}" for holder, nbytes in declared.items())
            raise ValueError(f"{sum(declared.values())} of {total} bytes are declared: {each}")
        self.total = total
        self._declared = dict(declared)
        self._used = dict.fromkeys(declared, 0)
        self._peak = dict.fromkeys(declared, 0)

    def free(self, holder: H) -> int:
        """Bytes that the holder may still take."""
        return self._declared[holder] - self._used[holder]

    def take(self, holder: H, nbytes: int) -> None:
        """Take all of `nbytes` or, with OverBudget, none."""
        assert nbytes >= 0
        free = self.free(holder)
        if nbytes > free:
            raise OverBudget(holder, nbytes, free, self._declared[holder])
        self._used[holder] += nbytes
        self._peak[holder] = max(self._peak[holder], self._used[holder])

    def give_back(self, holder: H, nbytes: int) -> None:
        """Bytes that the holder took are free again."""
        assert 0 <= nbytes <= self._used[holder], f"{holder} has {self._used[holder]} bytes"
        self._used[holder] -= nbytes

    def usage(self) -> dict[H, Usage]:
        """Declared and used, holder by holder."""
        return {
            holder: Usage(declared, self._used[holder], self._peak[holder])
            for holder, declared in self._declared.items()
        }

    def check_integrity(self) -> None:
        """Nobody has more than was declared, and all of it together fits the device."""
        for usage in self.usage().values():
            assert 0 <= usage.used <= usage.peak <= usage.declared
        assert sum(self._declared.values()) <= self.total


class BatchBudget:
    """The bytes of batches that are computed one after another; `limit` 0: as many as they take."""

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise ValueError(f"a batch may take {limit} bytes; 0 or more is accepted")
        self.limit = limit or UNBOUNDED
        self._budget = ByteBudget(self.limit, {BATCH: self.limit})
        self._batch = 0

    def most(self, row: int) -> int:
        """How many rows of so many bytes one batch may have; 0: not even one."""
        return self.limit // max(1, row)

    def begin(self, nbytes: int) -> None:
        """A batch takes its bytes before it is computed; OverBudget when they are too many."""
        assert not self._batch, "a batch is under way"
        self._budget.take(BATCH, nbytes)
        self._batch = nbytes

    def end(self) -> None:
        """It has been computed, or has failed."""
        nbytes, self._batch = self._batch, 0
        self._budget.give_back(BATCH, nbytes)

    def usage(self) -> dict[str, Usage]:
        """Of the batch under way, and the most that one had."""
        return self._budget.usage()
