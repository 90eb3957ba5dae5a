"""The two metrics that stages are scaled by, from what pods tell on /metrics, as the rules of
deploy/kubernetes have Prometheus make them. Pure: told the time."""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass

from deploy.figures import Row


@dataclass(frozen=True)
class Look:
    """What one pod told at one time, by stage. `taken`, `places`: of its slots."""

    at_s: float
    waited_s: dict[str, float]
    count: dict[str, float]
    taken: dict[str, float]
    places: dict[str, float]

    @classmethod
    def of(cls, at_s: float, rows: Iterable[Row]) -> "Look":
        """From the rows of /metrics."""
        found = cls(at_s, *(defaultdict(float) for _ in range(4)))
        for row in rows:
            state = row.labels.get("state", "")
            if row.name == "tristage_queue_seconds_sum":
                found.waited_s[row.stage] += row.value
            elif row.name == "tristage_queue_seconds_count":
                found.count[row.stage] += row.value
            elif row.name == "tristage_slots" and state in ("running", "free"):
                found.places[row.stage] += row.value
                found.taken[row.stage] += row.value if state == "running" else 0.0
        return found


class PodFigures:
    """Of one pod, over a window of `window_s`."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._looks: deque[Look] = deque()

    def add(self, look: Look) -> None:
        """The newest."""
        self._looks.append(look)
        while self._looks[0].at_s < look.at_s - self._window_s:
            self._looks.popleft()

    def waited_s(self) -> float | None:
        """Mean s that requests waited which began to be computed in the window, of the stage that
        waits longest; 0 where none did. None before there are two looks."""
        if len(self._looks) < 2:
            return None
        first, last = self._looks[0], self._looks[-1]
        counts = {stage: last.count[stage] - first.count.get(stage, 0.0) for stage in last.count}
        waits = [
            (last.waited_s[stage] - first.waited_s.get(stage, 0.0)) / count
            for stage, count in counts.items()
            if count > 0
        ]
        return max(waits, default=0.0)

    def busy(self) -> float | None:
        """Mean share of slots that were taken in the window, of the fullest stage. None before
        there are two looks."""
        if len(self._looks) < 2:
            return None
        shares = [
            sum(look.taken.get(stage, 0.0) for look in self._looks) / places
            for stage in self._looks[-1].places
            if (places := sum(look.places.get(stage, 0.0) for look in self._looks))
        ]
        return max(shares, default=0.0)
