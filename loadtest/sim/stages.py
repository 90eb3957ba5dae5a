"""The stages in virtual time, with the product's own policies."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from loadtest.sim.clock import Clock, Device
from loadtest.sim.costs import Costs
from loadtest.sim.people import Talk
from python_backends.scheduling.continuous import ContinuousBatch, Member, Plan
from python_backends.scheduling.window import ConditionalWindow, Release

Then = Callable[[Talk], None]
LOOK_S = 0.002
"""How often an encoder that waits for others looks whether they still run."""


@dataclass(frozen=True)
class Place:
    """Where a stage runs and what runs there."""

    clock: Clock
    costs: Costs
    device: Device
    wakeup_s: float = 0.0
    """From the end of a pass until the stage's process asks for its next one."""


@dataclass(frozen=True)
class Consideration:
    """What the encoder does for the sake of running streams."""

    cap: int | None = None
    """Members of a pass while somebody runs; None: as many as ever."""

    patience_s: float = 0.0
    """How long a ready member waits for running streams to end."""

    gather: bool = False
    """While nobody runs, answers are held until nothing is ready, so that nobody is stalled by the
    passes behind his own."""


IGNORE = Consideration()


class Encoder:
    """A conditional window in front of one pass at a time; `running` counts streams elsewhere."""

    def __init__(
        self,
        place: Place,
        then: Then,
        *,
        max_batch: int,
        running: Callable[[], int] = lambda: 0,
        consideration: Consideration = IGNORE,
    ) -> None:
        listen = place.costs.profile.stages["listen"]
        self._place = place
        self._then = then
        self._running = running
        self._consideration = consideration
        self._build_s = listen.build_ms / 1000
        self._window: ConditionalWindow[int, Talk] = ConditionalWindow(
            max_batch=max_batch, window_s=listen.window_ms / 1000
        )
        self._free_since: float | None = 0.0
        self._held: list[Talk] = []

    def send(self, talk: Talk) -> None:
        """A turn arrives; its features are built by a worker of its own."""
        self._window.build(0)
        clock = self._place.clock
        clock.at(clock.now + self._build_s, partial(self._built, talk))

    def look(self) -> None:
        """Let a batch leave if it may; look again when its window or its patience ends."""
        if self._free_since is None:
            return
        deadline = self._window.next_deadline()
        if deadline is None:
            self._answer()
            return
        clock, running = self._place.clock, self._running()
        patient_until = deadline - self._window.window_s + self._consideration.patience_s
        if running and not self._held and clock.now < patient_until:
            clock.at(min(patient_until, clock.now + LOOK_S), self.look)
            return
        limit = self._consideration.cap if running else None
        batch = self._window.release(clock.now, free_since=self._free_since, limit=limit)
        if batch is not None:
            self._run(batch)
        else:
            clock.at(max(deadline, clock.now + LOOK_S), self.look)

    def _built(self, talk: Talk) -> None:
        self._window.ready(talk, 0, self._place.clock.now)
        self.look()

    def _run(self, batch: Release[int, Talk]) -> None:
        place, size = self._place, len(batch.items)
        self._free_since = None
        cost_s = place.costs.pass_s("listen", size)
        done = place.device.reserve(place.clock.now, "listen", size, cost_s)
        place.clock.at(done.end, partial(self._encoded, batch))

    def _encoded(self, batch: Release[int, Talk]) -> None:
        clock = self._place.clock
        self._held += batch.items
        self._free_since = clock.now
        if self._running() or not self._consideration.gather:
            self._answer()
        clock.at(clock.now + self._place.wakeup_s, self.look)

    def _answer(self) -> None:
        held, self._held = self._held, []
        for talk in held:
            self._then(talk)


class JoinAtOnce(ContinuousBatch[Talk]):
    """Everybody who waits joins the next step: no prompt chunk stands between, as in the sketch."""

    def plan(self) -> Plan[Talk] | None:
        """All rows, filled from the queue."""
        while self.waiting and len(self.rows) < self.slots:
            member = self.waiting.popleft()
            member.length = member.prompt
            self.rows.append(member)
        self._moves.clear()
        return Plan((), None, tuple(self.rows)) if self.rows else None


class Steps:
    """A continuous batch that makes `count` steps of every turn, one step at a time; host work of a
    step runs beside the next step, and must be done before the one after."""

    def __init__(
        self,
        place: Place,
        name: str,
        then: Then,
        each: Callable[[Talk, int], None] | None = None,
        *,
        join_at_once: bool = True,
    ) -> None:
        stage = place.costs.profile.stages[name]
        self.batch = (JoinAtOnce if join_at_once else ContinuousBatch[Talk])(
            slots=stage.max_batch, capacity=stage.steps + 1, prefill_chunk=1
        )
        self._place = place
        self._name = name
        self._count = stage.steps
        self._then = then
        self._each = each or (lambda talk, step: None)
        self._idle = True
        self._host_done = 0.0

    def send(self, talk: Talk) -> None:
        """A turn arrives and joins between two steps."""
        self.batch.join(Member(talk, prompt=1, max_new=self._count))
        if self._idle:
            self._idle = False
            self._place.clock.at(self._place.clock.now, self._step)

    @property
    def device(self) -> Device:
        """What its steps run on."""
        return self._place.device

    @property
    def running(self) -> int:
        """Streams in the batch or about to join it."""
        return len(self.batch.members())

    def _step(self) -> None:
        plan = self.batch.plan()
        if plan is None:
            self._idle = True
            return
        place = self._place
        stepping = [*plan.decode, *([plan.chunk.member] if plan.chunk else [])]
        cost_s = place.costs.pass_s(self._name, len(stepping))
        done = place.device.reserve(place.clock.now, self._name, len(stepping), cost_s)
        place.clock.at(done.end, partial(self._stepped, plan, stepping))

    def _stepped(self, plan: Plan[Talk], stepping: list[Member[Talk]]) -> None:
        clock = self._place.clock
        self.batch.commit(plan)
        may_start = max(clock.now + self._place.wakeup_s, self._host_done)
        self._host_done = max(clock.now, self._host_done) + self._place.costs.host_s(len(stepping))
        clock.at(may_start, self._step)
        for member in stepping:
            member.payload.stepped(self._name, clock.now)
            self._each(member.payload, member.generated)
            if member.exhausted:
                self.batch.leave(member)
                self._then(member.payload)
