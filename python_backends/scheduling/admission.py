"""Who may begin now, who waits, and who is told to come back, and when.

Few are worked on at once, since everybody's turn gets longer with every one more; some wait, in an
order that is fair; nobody else is let in. A refusal costs nothing and says when to try again.
"""

from collections import Counter, deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

T = TypeVar("T")

Reason = Literal["queue", "caller", "deadline", "stage", "draining"]
"""Too many wait; too many of this caller wait; it would be late; a stage has no room; no more are
taken at all."""

LOOK_BACK_S: Final = 5.0
MOST_LOOKED_AT: Final = 64
FIRST_GUESS_S: Final = 0.5
"""When to come back, before any turn has ended."""

LEAST_RETRY_S: Final = 0.1
QUICK_SHARE: Final = 0.2
"""A turn is refused for its deadline only when the quickest fifth of late would miss it."""


@dataclass(frozen=True)
class Refusal(Exception):
    """Not admitted; `stage` is the one without room, where it is one."""

    reason: Reason
    retry_after_s: float
    ahead: int
    stage: str = ""


@dataclass(eq=False)
class _Entry(Generic[T]):
    item: T
    caller: Hashable
    arrived_s: float
    deadline_s: float
    began_s: float = 0.0


class Admission(Generic[T]):
    """At most `most_open` items at work and `most_waiting` in front; times are in s.

    Who waits begins in this order: first callers with the fewest at work, then the earliest
    deadline, then as they came. A caller may have half of the waiting places, and one always.
    """

    def __init__(self, *, most_open: int, most_waiting: int) -> None:
        self.most_open = most_open
        self.most_waiting = most_waiting
        self.draining = False
        """Nobody else is taken; who is here is served."""

        self._waiting: list[_Entry[T]] = []
        self._open: dict[T, _Entry[T]] = {}
        self._took: deque[tuple[float, float]] = deque(maxlen=MOST_LOOKED_AT)
        """Of those that were served of late: when they ended, and how long they took."""

        self._full_until: dict[str, float] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def open(self) -> int:
        return len(self._open)

    def offer(
        self, item: T, now: float, *, caller: Hashable, deadline_s: float = float("inf")
    ) -> None:
        """Let it wait, to be taken by `begin`; raises Refusal. An item is offered once."""
        reason, stage, retry_s = self._objection(now, caller, deadline_s)
        if reason is not None:
            raise Refusal(reason, max(LEAST_RETRY_S, retry_s), max(0, -self._free()), stage)
        self._waiting.append(_Entry(item, caller, now, deadline_s))

    def waits(self, item: T) -> bool:
        """It was let in, and has neither begun nor left."""
        return any(entry.item is item for entry in self._waiting)

    def begin(self, now: float) -> Iterator[T]:
        """Those who may begin now, in order. They are at work until `end`."""
        at_work = Counter(entry.caller for entry in self._open.values())
        while self._waiting and len(self._open) < self.most_open:
            entry = min(
                self._waiting, key=lambda one: (at_work[one.caller], one.deadline_s, one.arrived_s)
            )
            self._waiting.remove(entry)
            entry.began_s = now
            self._open[entry.item] = entry
            at_work[entry.caller] += 1
            yield entry.item

    def late(self, now: float) -> list[T]:
        """Those who wait and whose deadline even a quick turn would miss; they leave. Begun all
        the same, they would take the time that others still have. An idle server tries."""
        soonest_s = now + self._least_s(now)
        late = [entry for entry in self._waiting if entry.deadline_s <= soonest_s]
        for entry in late:
            self._waiting.remove(entry)
        return [entry.item for entry in late]

    def next_deadline(self, now: float) -> float:
        """When `late` will have one, as turns go now; infinity when nobody waits for anything."""
        first_s = min((entry.deadline_s for entry in self._waiting), default=float("inf"))
        return first_s - self._least_s(now)

    def end(self, item: T, now: float, *, served: bool) -> None:
        """It is over, wherever it was; `served` turns tell how long one takes."""
        entry = self._open.pop(item, None)
        if entry is None:
            self._waiting = [one for one in self._waiting if one.item is not item]
        elif served:
            self._took.append((now, now - entry.began_s))

    def stage_is_full(self, stage: str, until_s: float) -> None:
        """A stage has refused; until then nobody is let in only to be refused there."""
        self._full_until[stage] = max(until_s, self._full_until.get(stage, until_s))

    def check_integrity(self) -> None:
        """Bounds hold, and nobody waits for a place that is free."""
        assert len(self._open) <= self.most_open
        assert len(self._waiting) <= self.most_waiting + self.most_open
        waiting = {id(entry.item) for entry in self._waiting}
        assert len(waiting) == len(self._waiting)
        assert not waiting & {id(item) for item in self._open}

    def _objection(
        self, now: float, caller: Hashable, deadline_s: float
    ) -> tuple[Reason | None, str, float]:
        """Why it may not come in, the stage that is to blame, and when to try again."""
        if self.draining:
            return "draining", "", FIRST_GUESS_S
        full = [(until, stage) for stage, until in self._full_until.items() if until > now]
        if full:
            until, stage = max(full)
            return "stage", stage, until - now
        free = self._free()
        if free > 0:
            wait_s = 0.0
        else:
            wait_s = self._turn_s(now) * (1 - free) / self.most_open
            if -free >= self.most_waiting:
                return "queue", "", wait_s
            mine = sum(entry.caller == caller for entry in self._waiting)
            if mine - self._places() >= max(1, self.most_waiting // 2):
                return "caller", "", wait_s
        least_s = self._least_s(now)
        if least_s and now + wait_s + least_s > deadline_s:
            return "deadline", "", wait_s
        return None, "", 0.0

    def _places(self) -> int:
        """Where some of those who wait may begin."""
        return self.most_open - len(self._open)

    def _free(self) -> int:
        """Places that nobody will have begun at; less than 0: so many wait behind the others."""
        return self._places() - len(self._waiting)

    def _recent(self, now: float) -> list[float]:
        return sorted(took for ended, took in self._took if now - ended <= LOOK_BACK_S)

    def _turn_s(self, now: float) -> float:
        """How long a turn takes of late."""
        recent = self._recent(now)
        return sum(recent) / len(recent) if recent else FIRST_GUESS_S

    def _least_s(self, now: float) -> float:
        """How long a quick turn takes of late; 0 when none was served, or none is at work."""
        recent = self._recent(now) if self._open else []
        return recent[int(QUICK_SHARE * len(recent))] if recent else 0.0
