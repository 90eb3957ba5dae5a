"""Virtual time, and the device in it."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

Action = Callable[[], None]


class Clock:
    """Runs actions in the order of their times (seconds); equal times in the order of asking."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ticket = count()
        self._agenda: list[tuple[float, int, Action]] = []

    def at(self, time: float, action: Action) -> None:
        """Run `action` at `time`, or now if that has passed."""
        heapq.heappush(self._agenda, (max(time, self.now), next(self._ticket), action))

    def run(self, until: float) -> None:
        """Let time pass, up to `until` or the last action."""
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, action = heapq.heappop(self._agenda)
            action()


@dataclass(frozen=True)
class Pass:
    """One task of a device, as in loadtest.device."""

    stage: str
    members: int
    start: float
    end: float


@dataclass
class Device:
    """One task at a time, first come first served, by reservation, as loadtest.device."""

    free_at: float = 0.0
    passes: list[Pass] = field(default_factory=list)

    def reserve(self, now: float, stage: str, members: int, cost_s: float) -> Pass:
        """The pass that is asked for at `now`."""
        start = max(now, self.free_at)
        self.free_at = start + cost_s
        done = Pass(stage, members, start, self.free_at)
        self.passes.append(done)
        return done

    def busy(self, start: float, end: float) -> float:
        """Its share of [start, end) that was computing."""
        spans = (min(one.end, end) - max(one.start, start) for one in self.passes)
        return sum(span for span in spans if span > 0) / (end - start)
