"""The conditional window: how an encoder's batches form.

A batch leaves only when the encoder has a free pass; until then members keep joining. Once it is
free, a batch leaves when it is full, when nothing else of its bucket is being built, or when its
oldest member has been ready for the length of the window. A single request therefore never waits.

A batch also has a cost cap: it leaves as soon as the next member would exceed it, since waiting
could bring it nobody. A member whose own cost is above the cap runs alone.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class Reason(StrEnum):
    """Why a batch left."""

    FULL = "full"
    NO_COMPANION = "no_companion"
    WINDOW = "window"
    ENCODER_FREED = "encoder_freed"
    STALL_BUDGET = "stall_budget"
    COST_CAP = "cost_cap"


@dataclass(frozen=True)
class Cost:
    """What one member adds to a batch, or what a batch may have at most."""

    frames: float = 0
    nbytes: float = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.frames + other.frames, self.nbytes + other.nbytes)

    def within(self, cap: "Cost") -> bool:
        """Neither frames nor bytes exceed those of `cap`."""
        return self.frames <= cap.frames and self.nbytes <= cap.nbytes


NO_COST = Cost()
NO_CAP = Cost(math.inf, math.inf)


@dataclass(frozen=True)
class Release(Generic[K, T]):
    """A batch of one shape bucket, and why it leaves now."""

    bucket: K
    items: tuple[T, ...]
    reason: Reason


@dataclass(frozen=True)
class _Ready(Generic[T]):
    item: T
    since: float
    cost: Cost


class ConditionalWindow(Generic[K, T]):
    """Members per shape bucket: first being built, then ready, then released together.

    Times are seconds on any one clock, always told by the caller.
    """

    def __init__(self, *, max_batch: int, window_s: float, cap: Cost = NO_CAP) -> None:
        if max_batch < 1 or window_s < 0:
            raise ValueError("max_batch must be at least 1 and window_s not negative")
        if not (cap.frames > 0 and cap.nbytes > 0):
            raise ValueError(f"nothing fits into a batch of at most {cap}")
        self.max_batch = max_batch
        self.window_s = window_s
        self.cap = cap
        self.reasons: Counter[Reason] = Counter()
        self._building: Counter[K] = Counter()
        self._ready: dict[K, deque[_Ready[T]]] = {}

    def build(self, bucket: K) -> None:
        """A member of `bucket` has arrived and is being built, or waits to be."""
        self._building[bucket] += 1

    def abandon(self, bucket: K) -> None:
        """A member of `bucket` will never be ready: its build failed or its caller left."""
        self._building[bucket] -= 1

    def ready(self, item: T, bucket: K, now: float, cost: Cost = NO_COST) -> None:
        """`item`, announced by `build`, is built and adds `cost` to its batch."""
        self._building[bucket] -= 1
        self._ready.setdefault(bucket, deque()).append(_Ready(item, now, cost))

    def drop(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Take out and return every ready item for which `unwanted` holds; each is asked once."""
        dropped: list[T] = []
        for bucket, queue in list(self._ready.items()):
            kept: deque[_Ready[T]] = deque()
            for entry in queue:
                if unwanted(entry.item):
                    dropped.append(entry.item)
                else:
                    kept.append(entry)
            self._keep(bucket, kept)
        return dropped

    def release(
        self, now: float, *, free_since: float | None, limit: int | None = None
    ) -> Release[K, T] | None:
        """The batch that leaves now; None while waiting pays, or the encoder is busy (`free_since`
        None). `limit` makes this batch smaller than `max_batch`, for the sake of others."""
        if free_since is None:
            return None
        most = self.max_batch if limit is None else max(1, min(limit, self.max_batch))
        for bucket, queue in sorted(self._ready.items(), key=lambda pair: pair[1][0].since):
            reason = self._reason(bucket, queue, now, free_since, most)
            if reason is not None:
                self.reasons[reason] += 1
                return Release(bucket, tuple(self._take(bucket, most)), reason)
        return None

    def next_in_line(self) -> list[T]:
        """The ready members that the next batch will be made of, of whatever bucket it is."""
        queues = self._ready.values()
        return [entry.item for queue in queues for entry in islice(queue, self.max_batch)]

    def next_deadline(self) -> float | None:
        """When the oldest ready member will have waited a whole window; None when none waits."""
        oldest = self.oldest_since
        return None if oldest is None else oldest + self.window_s

    @property
    def oldest_since(self) -> float | None:
        """Since when the oldest ready member has been ready; None when none is."""
        return min((queue[0].since for queue in self._ready.values()), default=None)

    @property
    def ready_count(self) -> int:
        """Members that are ready."""
        return sum(map(len, self._ready.values()))

    @property
    def waiting(self) -> int:
        """Members being built or ready."""
        return sum(self._building.values()) + self.ready_count

    def check_integrity(self) -> None:
        """Nothing is built twice and no empty queue is kept."""
        assert all(count >= 0 for count in self._building.values()), self._building
        assert all(self._ready.values()), "an empty bucket was kept"

    def _reason(
        self, bucket: K, queue: deque[_Ready[T]], now: float, free_since: float, most: int
    ) -> Reason | None:
        fitting = self._fitting(queue, most)
        if fitting == most:
            return Reason.FULL if most == self.max_batch else Reason.STALL_BUDGET
        if fitting < len(queue) or (self._building[bucket] and not self._has_room(queue)):
            return Reason.COST_CAP
        due = queue[0].since + self.window_s
        if due <= free_since and free_since > queue[0].since:
            return Reason.ENCODER_FREED
        if not self._building[bucket]:
            return Reason.NO_COMPANION
        return Reason.WINDOW if due <= now else None

    def _fitting(self, queue: deque[_Ready[T]], most: int) -> int:
        """How many from the head of `queue` one batch may have, at least one."""
        cost = queue[0].cost
        for count, entry in enumerate(islice(queue, 1, most), 1):
            cost += entry.cost
            if not cost.within(self.cap):
                return count
        return min(most, len(queue))

    def _has_room(self, queue: deque[_Ready[T]]) -> bool:
        """One more would fit behind all of `queue`, if it costs as much as the last: members of a
        bucket have one shape."""
        return _total([*queue, queue[-1]]).within(self.cap)

    def _take(self, bucket: K, most: int) -> list[T]:
        queue = self._ready[bucket]
        taken = [queue.popleft().item for _ in range(self._fitting(queue, most))]
        self._keep(bucket, queue)
        return taken

    def _keep(self, bucket: K, queue: deque[_Ready[T]]) -> None:
        if queue:
            self._ready[bucket] = queue
        else:
            self._ready.pop(bucket, None)


def _total(entries: Iterable[_Ready[T]]) -> Cost:
    return sum((entry.cost for entry in entries), NO_COST)
