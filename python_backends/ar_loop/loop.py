"""The autoregressive loop: land a step, settle who stays, launch the next, deliver the landed one.

Every engine always has a step under way while the host works on the tokens of the one before, so
what the host does costs nothing as long as it takes less time than a step. All engines of a stage
take from one queue.
"""

import time
from collections.abc import Callable
from collections.abc import Sequence as Many
from concurrent.futures import Future, ThreadPoolExecutor

from python_backends.ar_loop.follow_up import Followed, FollowUp
from python_backends.ar_loop.lane import Drawn, Flight, Lane
from python_backends.ar_loop.sequence import Sequence, Task, Work
from python_backends.ar_loop.settings import LoopSettings
from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Meters, Request, Wake
from python_backends.bridge.inbox import Event
from python_backends.errors import (
    Cancelled,
    InvalidInput,
    Overloaded,
    StageError,
    StageFailed,
)
from python_backends.scheduling.bytes import OverBudget, Usage
from python_backends.scheduling.continuous import ContinuousBatch, Member, Plan
from python_backends.scheduling.fair import FairQueue
from python_backends.scheduling.prefixes import EVERYBODY, Prefixes
from python_backends.slot_engine.command import StepEngine

DEFAULT_STEP_S = 0.02
LOOK_S = 0.05
"""How often callers are looked at; a request asks the server less often still."""


class DecodeLoop:
    """Continuous batching of one task on some engines; `publish` is told how many are running."""

    def __init__(
        self,
        task: Task,
        engines: Many[StepEngine],
        settings: LoopSettings,
        clock: Callable[[], float] = time.monotonic,
        publish: Callable[[int], None] = lambda running: None,
        meters: Meters | None = None,
        prefixes: Prefixes | None = None,
    ) -> None:
        self.waiting: FairQueue[Member[Sequence]] = FairQueue()
        self.prefixes = prefixes or Prefixes(byte_limit=0, token_bytes=1)
        self._task = task
        self._settings = settings
        self._clock = clock
        self._lanes = [self._lane(index, engine) for index, engine in enumerate(engines)]
        self._publish = publish
        self._meters = meters or Meters()
        self._inbox = Inbox()
        self._step_s = DEFAULT_STEP_S
        self._look_at = clock()
        self._launched: list[Flight] = []
        self._landed_after_s: list[float] = []
        self._ending: dict[Request, StageError] = {}
        self._deserted: list[Member[Sequence]] = []
        self._following: set[FollowUp] = set()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="follow-up")

    def _lane(self, index: int, engine: StepEngine) -> Lane:
        settings = self._settings
        batch = ContinuousBatch(
            settings.slots,
            settings.capacity,
            settings.prefill_chunk,
            settings.join_tokens,
            lone_chunk=settings.lone_chunk,
            byte_limit=settings.kv_bytes,
            waiting=self.waiting,
        )
        return Lane(engine, batch, self._clock, f"engine-{index}")

    def run(self, inbox: Inbox) -> None:
        """Serve until closed; whatever is under way says so when it is done."""
        self._inbox = inbox
        self._meter()
        try:
            while all(map(self._serve, inbox.take(0 if self._has_to_settle else None))):
                self.step()
        finally:
            for lane in self._lanes:
                lane.close()
            self._worker.shutdown(cancel_futures=True)

    @property
    def busy(self) -> bool:
        """There is something to do without anything new arriving."""
        return bool(self._is_computing or self._has_to_settle or self.members())

    @property
    def _is_computing(self) -> bool:
        return any(lane.flight is not None for lane in self._lanes)

    @property
    def _has_to_settle(self) -> bool:
        """Nothing is under way after which it would be settled who leaves."""
        leaving = self._ending or self._deserted
        return bool(leaving) and not self._is_computing

    def members(self) -> list[Member[Sequence]]:
        """Everybody: decoding, being prefilled, waiting."""
        return [*(one for lane in self._lanes for one in lane.batch.running()), *self.waiting]

    def usage(self) -> dict[str, Usage]:
        """KV of those who have a row, at what they may grow to. Any thread may ask."""
        rows = [lane.batch.usage() for lane in self._lanes]
        declared, used = sum(one.declared for one in rows), sum(one.used for one in rows)
        return {"kv": Usage(declared, used, peak=sum(one.peak for one in rows))}

    def check_integrity(self) -> None:
        """What the batches and the store of prefixes hold is what they may."""
        for lane in self._lanes:
            lane.batch.check_integrity()
        self.prefixes.check_integrity()

    def step(self) -> None:
        """Have every engine that is free advance its sequences by one token, and one prompt by one
        chunk; those still computing are left alone."""
        drawn = [one for lane in self._lanes if lane.has_landed for one in self._land(lane)]
        self._settle()
        for lane in self._lanes:
            if lane.flight is None:
                self._launch(lane)
        self._publish(self._running)
        self._deliver(drawn)
        self._look()
        self._meter()

    def _land(self, lane: Lane) -> list[Drawn]:
        """Take what a lane has computed; whoever ended with it leaves the batch."""
        flight = lane.flight
        assert flight is not None
        try:
            drawn = lane.land()
        except StageError as error:
            self._abort(lane, error)
            return []
        if flight.plan.members:
            took_s = self._clock() - flight.since
            self._landed_after_s.append(lane.ran_until_s - flight.since)
            self._step_s += 0.05 * (took_s - self._step_s)
        for member in _begun(flight.plan):
            self._release(member)
        for one in drawn:
            self._advance(lane, one)
        return drawn

    def _advance(self, lane: Lane, drawn: Drawn) -> None:
        member = drawn.member
        sequence = member.payload
        if drawn.token[0] < 0:
            self._lose(sequence.request, StageFailed("the model's numbers were not finite"))
        elif sequence.advance(drawn.token):
            drawn.ended = "stop"
        elif member.exhausted:
            drawn.ended = "length"
        if drawn.ended:
            self._keep(lane, drawn)
            lane.batch.leave(member)

    def _keep(self, lane: Lane, drawn: Drawn) -> None:
        """Store what the row of a sequence that has ended holds, for its session's next turn, and
        for everybody what all prompts begin with."""
        sequence = drawn.member.payload
        lengths = {EVERYBODY: sequence.shared} if sequence.shared else {}
        if sequence.session:
            lengths[sequence.session] = drawn.member.length
        for session, length in lengths.items():
            prefix = self.prefixes.keep(session, sequence.written(length))
            if prefix is not None:
                lane.keep(prefix, drawn.row)
                # with one engine whatever is restored comes after it
                prefix.is_stored = len(self._lanes) == 1

    def _settle(self) -> None:
        """End what was cancelled, has failed, or is deserted, as far as it is not being computed;
        the rest of it when that has landed."""
        deserted, self._deserted = self._deserted, []
        for member in deserted:
            self._take_out(member.payload.request)
        for request, error in list(self._ending.items()):
            if self._take_out(request):
                del self._ending[request]
                self._end(request, error)

    def _launch(self, lane: Lane) -> None:
        """Have the next command computed, if there is one."""
        flight = lane.launch(self.prefixes.dropped, lambda _: self._inbox.put(Wake(_LANDED)))
        if flight is not None:
            self._launched.append(flight)

    def _deliver(self, drawn: list[Drawn]) -> None:
        """Use the tokens of the steps that have landed; failures are settled after the next one."""
        for one in drawn:
            sequence = one.member.payload
            if not sequence.request.is_open or one.token[0] < 0:
                continue
            try:
                sequence.deliver(one.token, one.score, one.no_speech)
                if one.ended:
                    self._follow_up(sequence.request, sequence.close(one.ended))
            except StageError as error:
                self._lose(sequence.request, error)
        if drawn:
            self._task.after_step(len(drawn))

    def _look(self) -> None:
        """See who is gone, every now and then, while a step is under way: asking takes its time."""
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        for member in self.members():
            request = member.payload.request
            if not request.is_open:
                self._deserted.append(member)
            elif (error := request.gone) is not None:
                self._lose(request, error)

    def _meter(self) -> None:
        """Tell what the steps are like, while others are under way."""
        for took_s in self._landed_after_s:
            self._meters.step(took_s)
        for flight in self._launched:
            if flight.gap_s is not None:
                self._meters.observe("gap_seconds", flight.gap_s)
            for member in _begun(flight.plan):
                if member.payload.opens_request:
                    waited_s = flight.since - member.payload.request.arrived_ns / 1e9
                    self._meters.observe("queue_seconds", waited_s)
        self._landed_after_s, self._launched = [], []
        free = self._settings.slots * len(self._lanes) - self._running
        self._meters.gauge("session_bytes", self.prefixes.held_bytes)
        self._meters.slots(running=self._running, waiting=len(self.waiting), free=free)

    @property
    def _running(self) -> int:
        """Sequences that take part in what is being computed."""
        flights = [lane.flight for lane in self._lanes if lane.flight is not None]
        return sum(len(flight.plan.members) for flight in flights)

    def _serve(self, event: Event) -> bool:
        """Handle one event; False ends the loop."""
        match event:
            case Arrived(request):
                self._open(request)
            case CancelTurn(turn):
                self._cancel(turn)
            case Wake(news) if news is _LANDED:
                pass  # the lane knows
            case Wake(Followed(follow_up, done)):
                self._followed(follow_up, done)
            case Wake(news):
                raise TypeError(f"unexpected news {news!r}")
            case Closed():
                return False
        return True

    def _open(self, request: Request) -> None:
        try:
            self._refuse_if_full()
            sequences = self._task.open(request)
            for first in sequences[:1]:
                first.opens_request = True
            self._join(sequences)
        except StageError as error:
            self._lose(request, error)

    def _refuse_if_full(self) -> None:
        waiting = len(self.waiting)
        if waiting >= self._settings.max_waiting:
            slots = self._settings.slots * len(self._lanes)
            each = self._step_s * self._settings.max_new_tokens / slots
            raise Overloaded(
                f"{waiting} sequences wait for a slot; at most {self._settings.max_waiting} may",
                retry_after_ms=max(1, round(1000 * each * waiting)),
            )

    def _join(self, sequences: list[Sequence]) -> None:
        for one in sequences:
            is_known = one.session or one.shared
            match = self.prefixes.match(one.session, one.prompt.tolist()) if is_known else None
            member = Member(
                one,
                prompt=len(one.prompt),
                max_new=one.max_new,
                owner=one.request,
                prefix=0 if match is None else match.length,
                nbytes=self.prefixes.token_bytes * self._tokens_at_most(one),
            )
            one.match = match
            try:
                self._lanes[0].batch.join(member)
            except OverBudget as over:
                self._release(member)
                needed = f"{over.asked} bytes of KV are needed; the stage has {over.declared}"
                raise InvalidInput(needed, reason="bytes") from over
            except ValueError as fault:
                self._release(member)
                raise InvalidInput(str(fault)) from fault

    def _tokens_at_most(self, sequence: Sequence) -> int:
        """That its row may hold; the last one drawn is never written."""
        return min(self._settings.capacity, len(sequence.prompt) + sequence.max_new - 1)

    def _release(self, member: Member[Sequence]) -> None:
        """What was to be restored for a member has been, or will not be."""
        match, member.payload.match = member.payload.match, None
        if match is not None:
            self.prefixes.release(match)

    def _follow_up(self, request: Request, work: Work | None) -> None:
        """Do what is left of a sequence off the loop; its request stays open meanwhile."""
        if work is not None:
            follow_up = FollowUp(request, work)
            self._following.add(follow_up)
            future = self._worker.submit(follow_up.run)
            future.add_done_callback(lambda done: self._inbox.put(Wake(Followed(follow_up, done))))

    def _followed(self, follow_up: FollowUp, done: "Future[Sequence]") -> None:
        self._following.discard(follow_up)
        try:
            sequence = done.result()
            follow_up.check()
            self._join([sequence])
        except StageError as error:
            self._lose(follow_up.request, error)

    def _cancel(self, turn: str) -> None:
        open_requests = [member.payload.request for member in self.members()]
        open_requests += [follow_up.request for follow_up in self._following]
        found = {one for one in open_requests if one.turn == turn}
        for request in found:
            self._lose(request, Cancelled("the turn was cancelled"))
        if not found:
            self._task.abandon(turn)

    def _abort(self, lane: Lane, error: StageError) -> None:
        """A failed command ends everybody whose row it may have touched; the rest goes on, without
        what the store may not have any more."""
        members, prefixes = lane.abort()
        for member in members:
            self._release(member)
            self._lose(member.payload.request, StageFailed(error.message, stage=error.stage))
        for member in self.waiting:
            self._release(member)
            member.prefix = 0
        self.prefixes.lose(prefixes)

    def _lose(self, request: Request, error: StageError) -> None:
        """Fail a request as soon as nothing is computed for it; the first reason stays."""
        self._ending.setdefault(request, error)

    def _take_out(self, request: Request) -> bool:
        """Take a request's sequences out of the queue and of every lane that has landed; whether
        none is left."""
        left = False
        for member in [one for one in self.members() if one.payload.request is request]:
            lane = next((one for one in self._lanes if member in one.batch.running()), None)
            if lane is not None and lane.flight is not None:
                left = True
                continue
            (lane or self._lanes[0]).batch.leave(member)
            self._release(member)
        return not left

    def _end(self, request: Request, error: StageError) -> None:
        """Fail a request, after what is followed up for it: calling a model while no request is
        open would take the server down."""
        under_way = [one for one in self._following if one.request is request]
        for follow_up in under_way:
            follow_up.error = follow_up.error or error
        if not under_way:
            request.fail(error)
            self._task.abandon(request.turn)


def _begun(plan: Plan[Sequence]) -> list[Member[Sequence]]:
    """Those for whom nothing was computed before this plan."""
    chunks = (plan.chunk, *plan.joins) if plan.chunk is not None else plan.joins
    return [chunk.member for chunk in chunks if chunk.is_first]


_LANDED = object()
"""News that a command is done."""
