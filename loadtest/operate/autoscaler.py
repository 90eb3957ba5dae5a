"""How many replicas there shall be: what Kubernetes' HorizontalPodAutoscaler makes of metrics.

desired = ceil(replicas * mean / target) of each metric, the largest of them; within the tolerance
of the target nothing is changed; scaling down waits for the largest advice of a window, and both
ways are bounded in what they change in a period (kubernetes.io: Horizontal Pod Autoscaling,
"Algorithm details" and "Configurable scaling behavior"). Pure: told the time.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

TOLERANCE: Final = 0.1
Values = Sequence[float | None]
"""Of each pod; None: it tells nothing yet."""


@dataclass(frozen=True)
class Rule:
    """As a manifest has it. Times in s."""

    targets: Mapping[str, float]
    least: int
    most: int
    stable_s: float
    """Of scaling down: stabilizationWindowSeconds."""

    period_s: float
    """In which replicas are doubled at most, or one is taken away."""


class Autoscaler:
    """Asked again and again, with what was measured since."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._advice: deque[tuple[float, int]] = deque()
        self._changes: deque[tuple[float, int]] = deque()

    def desired(self, now: float, replicas: int, measured: Mapping[str, Values]) -> int:
        """Replicas from now on. A metric that no pod tells of changes nothing."""
        targets = self.rule.targets
        proposals = [proposed(replicas, measured[name], targets[name]) for name in targets]
        advice = max(proposals)
        _forget(self._advice, now - self.rule.stable_s)
        self._advice.append((now, advice))
        _forget(self._changes, now - self.rule.period_s)
        wanted = self._stable(replicas, advice)
        bounded = min(max(wanted, self.rule.least), self.rule.most)
        if bounded != replicas:
            self._changes.append((now, bounded - replicas))
        return bounded

    def _stable(self, replicas: int, advice: int) -> int:
        """Up at once, down only as far as all of the window agrees; both bounded by the period."""
        if advice > replicas:
            before = replicas - sum(change for _, change in self._changes if change > 0)
            return max(replicas, min(advice, 2 * before))
        highest = max(one for _, one in self._advice)
        before = replicas - sum(change for _, change in self._changes if change < 0)
        return min(replicas, max(highest, before - 1))


def proposed(replicas: int, values: Values, target: float) -> int:
    """By one metric. Pods that tell nothing count as 0 where more are wanted, and as on target
    where fewer are: neither way is exaggerated for want of figures."""
    known = [value for value in values if value is not None]
    if not known:
        return replicas
    ratio = sum(known) / len(known) / target
    unknown = (len(values) - len(known)) * (0.0 if ratio > 1 else target)
    whole = (sum(known) + unknown) / len(values) / target
    if abs(whole - 1) <= TOLERANCE or (whole > 1) != (ratio > 1):
        return replicas
    advice = math.ceil(whole * len(values))
    return max(advice, replicas) if whole > 1 else min(advice, replicas)


def _forget(entries: deque[tuple[float, int]], before: float) -> None:
    while entries and entries[0][0] <= before:
        entries.popleft()
