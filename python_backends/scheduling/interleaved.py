"""Interleaved steps: members at different steps share a call, and join and leave between calls."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from python_backends.scheduling.locked import rank

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(eq=False)
class _Member(Generic[K, T]):
    item: T
    key: K
    calls: int
    later_piece: bool
    since: float
    made: int = 0
    """Of its calls."""


class InterleavedBatch(Generic[K, T]):
    """Every call serves who is first in rank, and whoever of the same key follows.

    The key is the shape bucket alone. Steps and solvers may differ, because the time is told row by
    row. Lengths may not: a row is computed as long as the longest one beside it, so a short piece
    beside one five times as long would cost five times as much.

    The rank is that of `LockedBatch`: first pieces, and later ones that have waited `patience_s`,
    by age; then the other later ones. Who is first is in every call until its last one, so an item
    waits at most for its patience and for the calls of those that are older. A member may pause
    between two calls; it then waits like anybody else. Times are told. `most`: items of a key that
    fit into one call, where those are fewer than `max_batch`.
    """

    def __init__(
        self, *, max_batch: int, patience_s: float, most: Callable[[K], float] | None = None
    ) -> None:
        if max_batch < 1 or patience_s < 0:
            raise ValueError("max_batch must be at least 1 and patience_s not negative")
        self.max_batch = max_batch
        self.patience_s = patience_s
        self._most = most or (lambda key: max_batch)
        self._members: list[_Member[K, T]] = []
        self._running: tuple[_Member[K, T], ...] = ()

    def add(self, item: T, key: K, calls: int, now: float, *, later_piece: bool) -> None:
        """Queue an item that needs so many calls; ValueError when it needs none."""
        if calls < 1:
            raise ValueError(f"an item that needs {calls} calls cannot be queued")
        self._members.append(_Member(item, key, calls, later_piece, now))

    def start(self, now: float) -> tuple[T, ...] | None:
        """Members of the next call, by rank; None while one runs or nobody is left."""
        if self._running or not self._members:
            return None
        order = sorted(self._members, key=lambda one: self._rank(one, now))
        key = order[0].key
        fitting = max(1, int(min(self.max_batch, self._most(key))))
        self._running = tuple([one for one in order if one.key == key][:fitting])
        return self.running

    def finish(self) -> tuple[T, ...]:
        """The running call has been made; returns those whose last one it was."""
        for one in self._running:
            one.made += 1
        done = [one for one in self._running if one.made == one.calls and one in self._members]
        self._members = [one for one in self._members if one not in done]
        self._running = ()
        return tuple(one.item for one in done)

    def drop(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Take out and return items, each asked once: they are in no further call, and those in the
        running one stay in it to its end."""
        dropped = [one for one in self._members if unwanted(one.item)]
        self._members = [one for one in self._members if one not in dropped]
        return [one.item for one in dropped]

    @property
    def running(self) -> tuple[T, ...]:
        """Members of the running call."""
        return tuple(one.item for one in self._running)

    @property
    def waiting(self) -> int:
        """Items that are not in the running call, whether they have begun or not."""
        return sum(one not in self._running for one in self._members)

    def check_integrity(self) -> None:
        """Nobody is past its last call, and no call is too large or of two keys."""
        assert all(0 <= one.made < one.calls for one in self._members)
        assert len({id(one.item) for one in self._members}) == len(self._members)
        assert len(self._running) <= self.max_batch
        assert len({one.key for one in self._running}) <= 1

    def _rank(self, one: _Member[K, T], now: float) -> tuple[bool, float]:
        return rank(one.later_piece, one.since, now, self.patience_s)
