"""Locked batches: whoever starts together ends together, and nobody joins after the first step."""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, eq=False)
class _Waiting(Generic[K, T]):
    item: T
    key: K
    later_piece: bool
    since: float


class LockedBatch(Generic[K, T]):
    """Items of one key (model, shape bucket, steps, solver, guidance) run together, locked.

    First pieces of an answer go before later ones, which somebody already listens to; a later piece
    that has waited `patience_s` counts as a first one, so that nobody starves. Times are told.
    `most`: items of a key that fit into one batch, where those are fewer than `max_batch`.
    """

    def __init__(
        self, *, max_batch: int, patience_s: float, most: Callable[[K], float] | None = None
    ) -> None:
        if max_batch < 1 or patience_s < 0:
            raise ValueError("max_batch must be at least 1 and patience_s not negative")
        self.max_batch = max_batch
        self.patience_s = patience_s
        self._most = most or (lambda key: max_batch)
        self._waiting: deque[_Waiting[K, T]] = deque()
        self._running: tuple[T, ...] = ()

    def add(self, item: T, key: K, now: float, *, later_piece: bool) -> None:
        """Queue an item."""
        self._waiting.append(_Waiting(item, key, later_piece, now))

    def start(self, now: float) -> tuple[K, tuple[T, ...]] | None:
        """Lock and return the next batch; None while one runs or nothing waits."""
        if self._running or not self._waiting:
            return None
        order = sorted(self._waiting, key=lambda entry: self._rank(entry, now))
        key = order[0].key
        fitting = max(1, int(min(self.max_batch, self._most(key))))
        chosen = [entry for entry in order if entry.key == key][:fitting]
        for entry in chosen:
            self._waiting.remove(entry)
        self._running = tuple(entry.item for entry in chosen)
        return key, self._running

    def finish(self) -> None:
        """The running batch has made its last step, or failed."""
        self._running = ()

    def drop(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Take out and return waiting items, each asked once; the running batch stays until its
        end."""
        dropped: list[T] = []
        kept: deque[_Waiting[K, T]] = deque()
        for entry in self._waiting:
            if unwanted(entry.item):
                dropped.append(entry.item)
            else:
                kept.append(entry)
        self._waiting = kept
        return dropped

    @property
    def running(self) -> tuple[T, ...]:
        """Members of the locked batch."""
        return self._running

    @property
    def waiting(self) -> int:
        """Items not yet in a batch."""
        return len(self._waiting)

    def check_integrity(self) -> None:
        """Nobody both runs and waits, and no batch is larger than allowed."""
        running = {id(item) for item in self._running}
        assert not running & {id(entry.item) for entry in self._waiting}
        assert len(self._running) <= self.max_batch

    def _rank(self, entry: _Waiting[K, T], now: float) -> tuple[bool, float]:
        return rank(entry.later_piece, entry.since, now, self.patience_s)


def rank(later_piece: bool, since: float, now: float, patience_s: float) -> tuple[bool, float]:
    """Lowest first: first pieces, and later ones out of patience, by age; then other later ones."""
    return later_piece and now - since < patience_s, since
