"""An encoder stage in virtual time: build workers, a window, one pass at a time.

The window is the product's own class in each of its three forms, so that all have the same
back-pressure: nothing leaves while the encoder is busy, and members keep joining.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from loadtest.sim.clock import Clock
from loadtest.sim.costs import Costs
from python_backends.scheduling.window import ConditionalWindow, Reason, Release

STAGE = "listen"


class Policy(StrEnum):
    """When a batch leaves an encoder that is free."""

    NONE = "none"
    """At once, with whatever is ready: a window of no length."""

    FIXED = "fixed"
    """When its oldest member has been ready for the window: somebody is always expected."""

    CONDITIONAL = "conditional"
    """As the product: it is waited only for who is being built."""


@dataclass(eq=False)
class Caller:
    """One request. Times are seconds; those of its way through the stage are the stage's stamps."""

    bucket: int
    build_s: float
    arrived_s: float = 0.0
    ready_s: float = 0.0
    released_s: float = 0.0
    free_s: float = 0.0
    """Since when the encoder had been free when it was released."""

    answered_s: float = 0.0
    reason: Reason | None = None
    members: int = 0

    @property
    def latency_s(self) -> float:
        """From arrival to answer."""
        return self.answered_s - self.arrived_s

    @property
    def added_s(self) -> float:
        """Ready, with a free encoder, and not released."""
        return self.released_s - max(self.ready_s, self.free_s)


Then = Callable[[Caller], None]


class Stage:
    """Takes callers; `then` is told of each when it is answered."""

    def __init__(
        self, clock: Clock, costs: Costs, policy: Policy, buckets: range, workers: int, then: Then
    ) -> None:
        profile = costs.profile.stages[STAGE]
        window_s = 0.0 if policy is Policy.NONE else profile.window_ms / 1000
        self.window: ConditionalWindow[int, Caller] = ConditionalWindow(
            max_batch=profile.max_batch, window_s=window_s
        )
        if policy is Policy.FIXED:
            for bucket in buckets:
                self.window.build(bucket)
        self.alone = Loneliness(clock)
        self._clock = clock
        self._costs = costs
        self._then = then
        self._idle_workers = workers
        self._unbuilt: deque[Caller] = deque()
        self._free_since: float | None = 0.0

    def send(self, caller: Caller) -> None:
        """A caller arrives."""
        self.alone.look()
        caller.arrived_s = self._clock.now
        self.alone.building[caller.bucket] += 1
        self.window.build(caller.bucket)
        self._unbuilt.append(caller)
        self._build()

    def _build(self) -> None:
        while self._idle_workers and self._unbuilt:
            self._idle_workers -= 1
            caller = self._unbuilt.popleft()
            self._clock.at(self._clock.now + caller.build_s, partial(self._built, caller))

    def _built(self, caller: Caller) -> None:
        self.alone.look()
        caller.ready_s = self._clock.now
        self.alone.building[caller.bucket] -= 1
        self.alone.ready[caller.bucket] += 1
        self.window.ready(caller, caller.bucket, caller.ready_s)
        self._idle_workers += 1
        self._build()
        self._release()

    def _release(self) -> None:
        if self._free_since is None:
            return
        self.alone.look()
        batch = self.window.release(self._clock.now, free_since=self._free_since)
        deadline = self.window.next_deadline()
        if batch is not None:
            self._run(batch, self._free_since)
        elif deadline is not None:
            self._clock.at(deadline, self._release)

    def _run(self, batch: Release[int, Caller], free_s: float) -> None:
        self._free_since, self.alone.is_free = None, False
        self.alone.ready[batch.bucket] -= len(batch.items)
        for caller in batch.items:
            caller.released_s, caller.free_s = self._clock.now, free_s
            caller.reason, caller.members = batch.reason, len(batch.items)
        cost_s = self._costs.pass_s(STAGE, len(batch.items))
        self._clock.at(self._clock.now + cost_s, partial(self._encoded, batch))

    def _encoded(self, batch: Release[int, Caller]) -> None:
        self._free_since, self.alone.is_free = self._clock.now, True
        self.alone.since = self._clock.now
        for caller in batch.items:
            caller.answered_s = self._clock.now
            self._then(caller)
        self._release()


class Loneliness:
    """How long callers stood ready at a free encoder while nobody of their own bucket was being
    built: they waited for another bucket, or for nobody. Counted apart from the policy."""

    def __init__(self, clock: Clock) -> None:
        self.seconds = 0.0
        self.building: Counter[int] = Counter()
        self.ready: Counter[int] = Counter()
        self.is_free = True
        self.since = 0.0
        self._clock = clock

    def look(self) -> None:
        """Before anything changes: add what has passed since the last look."""
        now = self._clock.now
        if self.is_free:
            alone = sum(n for bucket, n in self.ready.items() if not self.building[bucket])
            self.seconds += alone * (now - self.since)
        self.since = now
