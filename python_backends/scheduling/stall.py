"""The stall budget: how long an encoder pass may hold up the streams on the same device.

A pass cannot be interrupted. On a shared device every running stream waits for its whole length,
so the batch may only be as large as the stall that the streams can afford. Alone on its device, or
with nobody running, the encoder is not limited.

With `gather_s` the encoder also waits a little for running streams to end, the longer the more are
ready, and while nobody runs it answers nobody before everybody who is ready has been encoded: then
people start to decode together, in large batches, instead of standing still for each other's passes
one by one. Those who were answered together are expected to come back together: the first of them
waits for the others as well.
"""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass

HOLD = 30
"""Answers are held for so many times `gather_s` at most."""

PATIENCE = 0.25
"""Each ready member, from the fourth on, adds so many times `gather_s` to the wait for streams to
end: for a crowd it pays to wait until the last stream has ended, for one caller it does not."""

COMPANY = 0.5
"""When so large a part of those who were last answered together is ready, nobody waits for more."""

SMOOTHING = 0.2
"""Weight of the newest measurement of a batch size."""


@dataclass(frozen=True)
class Streams:
    """Running streams of one stage, and how far ahead of playback the poorest of them is."""

    running: int
    slack_s: float = 0.0


class StallBudget:
    """Learns what passes cost, and says how many members the next one may have."""

    def __init__(self, max_stall_s: float, *, gather_s: float = 0.0) -> None:
        if not max_stall_s > 0 or gather_s < 0:
            raise ValueError("max_stall_s must be positive, gather_s not negative")
        self.max_stall_s = max_stall_s
        self.gather_s = gather_s
        self._seconds: dict[int, float] = {}
        self._wave = 0

    def answered(self, members: int) -> None:
        """So many were answered at once."""
        self._wave = members

    def learn(self, members: int, seconds: float) -> None:
        """A pass of so many members took so long."""
        known = self._seconds.get(members, seconds)
        self._seconds[members] = known + SMOOTHING * (seconds - known)

    def may_start(
        self,
        now: float,
        ready_since: float,
        ready: int,
        stages: Iterable[Streams],
        max_batch: int = sys.maxsize,
    ) -> bool:
        """A pass for `ready` members need not wait any longer, for running streams to end or for
        others to come; a full one does not wait for others."""
        waited_s = now - ready_since
        if _anybody(stages):
            return waited_s >= self.gather_s * max(1.0, PATIENCE * ready)
        return waited_s >= self.gather_s or ready >= min(max_batch, COMPANY * self._wave)

    def may_answer(self, now: float, held_since: float, stages: Iterable[Streams]) -> bool:
        """Answers need not be held any longer while others are being encoded."""
        return now - held_since >= HOLD * self.gather_s or _anybody(stages)

    def affordable_s(self, stages: Iterable[Streams]) -> float:
        """The longest stall that everybody who runs can afford: its slack, if that is longer."""
        return min(
            (max(self.max_stall_s, one.slack_s) for one in stages if one.running > 0),
            default=math.inf,
        )

    def limit(self, stages: Iterable[Streams], max_batch: int) -> int:
        """The largest batch, 1 to `max_batch`, whose pass is affordable."""
        affordable = self.affordable_s(stages)
        if math.isinf(affordable):
            return max_batch
        sizes = range(max_batch, 1, -1)
        return next((size for size in sizes if self.cost_s(size) <= affordable), 1)

    def cost_s(self, members: int) -> float:
        """Expected length of a pass: a line through the smallest and the largest size measured.

        With one size measured, one member more is taken to cost nothing, so that it is tried and
        measured; with none, the first pass beside a stream has one member.
        """
        if not self._seconds:
            return math.inf
        small, large = min(self._seconds), max(self._seconds)
        if small == large:
            return self._seconds[small] if members <= small + 1 else math.inf
        slope = (self._seconds[large] - self._seconds[small]) / (large - small)
        return self._seconds[small] + slope * (members - small)


def _anybody(stages: Iterable[Streams]) -> bool:
    return any(one.running > 0 for one in stages)
