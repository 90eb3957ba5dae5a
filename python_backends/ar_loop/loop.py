"""The autoregressive loop: land a step, settle who stays, launch the next, deliver the landed one.

One step is always being computed while the host works on the tokens of the one before, so what the
host does costs nothing as long as it takes less time than a step.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

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
from python_backends.scheduling.continuous import Chunk, ContinuousBatch, Member, Plan
from python_backends.slot_engine.command import (
    RESTART,
    Command,
    Decode,
    Prefill,
    Result,
    StepEngine,
    Tokens,
)

DEFAULT_STEP_S = 0.02


class DecodeLoop:
    """Continuous batching of one task on one engine; `publish` is told how many are running."""

    def __init__(
        self,
        task: Task,
        engine: StepEngine,
        settings: LoopSettings,
        clock: Callable[[], float] = time.monotonic,
        publish: Callable[[int], None] = lambda running: None,
        meters: Meters | None = None,
    ) -> None:
        self.batch: ContinuousBatch[Sequence] = ContinuousBatch(
            settings.slots, settings.capacity, settings.prefill_chunk, settings.join_tokens
        )
        self._task = task
        self._engine = engine
        self._settings = settings
        self._clock = clock
        self._publish = publish
        self._meters = meters or Meters()
        self._number = RESTART
        self._step_s = DEFAULT_STEP_S
        self._landed_after_s: float | None = None
        self._flight: _Flight | None = None
        self._cancels: list[str] = []
        self._losses: list[tuple[Request, StageError]] = []
        self._deserted: list[Member[Sequence]] = []
        self._following: set[_FollowUp] = set()
        self._compute = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="follow-up")

    def run(self, inbox: Inbox) -> None:
        """Serve until closed; waits only when no sequence is open."""
        self._inbox = inbox
        self._meter()
        try:
            while all(map(self._serve, inbox.take(0 if self.busy else None))):
                self.step()
        finally:
            self._compute.shutdown()
            self._worker.shutdown(cancel_futures=True)

    @property
    def busy(self) -> bool:
        """There is something to do without anything new arriving."""
        return bool(self._flight or self._cancels or self._losses or self.batch.members())

    def step(self) -> None:
        """Advance every running sequence by one token, and one prompt by one chunk."""
        drawn = self._land()
        self._settle()
        self._launch()
        self._deliver(drawn)
        self._look()
        self._meter()

    def _land(self) -> "list[_Drawn]":
        """Wait for the step under way; whoever ended with it leaves the batch."""
        flight, self._flight = self._flight, None
        if flight is None:
            return []
        try:
            result = flight.done.result()
        except StageError as error:
            self._abort(error)
            return []
        self._landed_after_s = self._clock() - flight.since
        self._step_s += 0.05 * (self._landed_after_s - self._step_s)
        self.batch.commit(flight.plan)
        drawn = _drawn(flight.plan, result)
        for one in drawn:
            self._advance(one)
        return drawn

    def _advance(self, drawn: "_Drawn") -> None:
        member = drawn.member
        if drawn.token[0] < 0:
            self._losses.append(
                (member.payload.request, StageFailed("the model's numbers were not finite"))
            )
        elif member.payload.advance(drawn.token):
            drawn.ended = "stop"
        elif member.exhausted:
            drawn.ended = "length"
        if drawn.ended:
            self.batch.leave(member)

    def _settle(self) -> None:
        """With no step under way: end what was cancelled, has failed, or is deserted."""
        for member in self._deserted:
            self.batch.leave(member)
        self._deserted.clear()
        losses, self._losses = self._losses, []
        for request, error in losses:
            self._end(request, error)
            self._task.abandon(request.turn)
        cancels, self._cancels = self._cancels, []
        for turn in cancels:
            self._cancel(turn)

    def _launch(self) -> None:
        """Have the next command computed, if there is one."""
        plan = self.batch.plan()
        self._publish(0 if plan is None else len(plan.members))
        if plan is not None:
            command = self._command(plan)
            done = self._compute.submit(self._engine.run, command)
            self._flight = _Flight(plan, done, self._clock())

    def _deliver(self, drawn: "list[_Drawn]") -> None:
        """Use the tokens of the step that has landed; failures are settled after the next one."""
        for one in drawn:
            sequence = one.member.payload
            if not sequence.request.is_open or one.token[0] < 0:
                continue
            try:
                sequence.deliver(one.token, one.score, one.no_speech)
                if one.ended:
                    self._follow_up(sequence.request, sequence.close(one.ended))
            except StageError as error:
                self._losses.append((sequence.request, error))
        if drawn:
            self._task.after_step(len(drawn))

    def _look(self) -> None:
        """See who is gone, while a step is under way: asking the server takes its time."""
        for member in self.batch.members():
            request = member.payload.request
            if not request.is_open:
                self._deserted.append(member)
            elif request.cancelled:
                self._cancels.append(request.turn)

    def _meter(self) -> None:
        """Tell what the steps are like, while one is under way."""
        if self._landed_after_s is not None:
            self._meters.step(self._landed_after_s)
            self._landed_after_s = None
        running = 0
        if self._flight is not None:
            running = len(self._flight.plan.members)
            for request in _begun(self._flight.plan):
                waited_s = self._flight.since - request.arrived_ns / 1e9
                self._meters.observe("queue_seconds", waited_s)
        free = self._settings.slots - running
        self._meters.slots(running=running, waiting=len(self.batch.waiting), free=free)

    def _serve(self, event: Event) -> bool:
        """Handle one event; False ends the loop."""
        match event:
            case Arrived(request):
                self._open(request)
            case CancelTurn(turn):
                self._cancels.append(turn)
            case Wake(_Followed(follow_up, done)):
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
            self._losses.append((request, error))

    def _refuse_if_full(self) -> None:
        waiting = len(self.batch.waiting)
        if waiting >= self._settings.max_waiting:
            each = self._step_s * self._settings.max_new_tokens / self._settings.slots
            raise Overloaded(
                f"{waiting} sequences wait for a slot; at most {self._settings.max_waiting} may",
                retry_after_ms=max(1, round(1000 * each * waiting)),
            )

    def _join(self, sequences: list[Sequence]) -> None:
        for one in sequences:
            try:
                self.batch.join(Member(one, prompt=len(one.prompt), max_new=one.max_new))
            except ValueError as fault:
                raise InvalidInput(str(fault)) from fault

    def _command(self, plan: Plan[Sequence]) -> Command:
        number = self._number
        self._number += 1
        prefill = _prefill(plan.chunk) if plan.chunk is not None else None
        joins = tuple(_prefill(join) for join in plan.joins)
        return Command(number, plan.moves, prefill, _decode(plan), joins)

    def _follow_up(self, request: Request, work: Work | None) -> None:
        """Do what is left of a sequence off the loop; its request stays open meanwhile."""
        if work is not None:
            follow_up = _FollowUp(request, work)
            self._following.add(follow_up)
            future = self._worker.submit(follow_up.run)
            future.add_done_callback(lambda done: self._inbox.put(Wake(_Followed(follow_up, done))))

    def _followed(self, follow_up: "_FollowUp", done: "Future[Sequence]") -> None:
        self._following.discard(follow_up)
        try:
            sequence = done.result()
            follow_up.check()
            self._join([sequence])
        except StageError as error:
            self._losses.append((follow_up.request, error))

    def _cancel(self, turn: str) -> None:
        open_requests = [member.payload.request for member in self.batch.members()]
        open_requests += [follow_up.request for follow_up in self._following]
        for request in {one for one in open_requests if one.turn == turn}:
            self._end(request, Cancelled("the turn was cancelled"))
        self._task.abandon(turn)

    def _abort(self, error: StageError) -> None:
        """A failed command ends everybody whose row it may have touched; the rest goes on."""
        self._number = RESTART
        for member in self.batch.abort():
            failure = StageFailed(error.message, stage=error.stage)
            self._losses.append((member.payload.request, failure))

    def _end(self, request: Request, error: StageError) -> None:
        """Take out a request's sequences and fail it, after what is followed up for it: calling
        a model while no request is open would take the server down."""
        for member in self.batch.find(lambda one: one.request is request):
            self.batch.leave(member)
        under_way = [one for one in self._following if one.request is request]
        for follow_up in under_way:
            follow_up.error = follow_up.error or error
        if not under_way:
            request.fail(error)


def _prefill(chunk: Chunk[Sequence]) -> Prefill:
    one = chunk.member.payload
    return Prefill(
        row=chunk.row,
        start=chunk.start,
        tokens=one.prompt[chunk.start : chunk.start + chunk.count],
        is_last=chunk.is_last,
        sampling=one.sampling,
        context=one.context if chunk.start == 0 else {},
    )


def _begun(plan: Plan[Sequence]) -> list[Request]:
    """The requests for which nothing was computed before this plan."""
    chunks = (plan.chunk, *plan.joins) if plan.chunk is not None else plan.joins
    firsts = [chunk.member.payload for chunk in chunks if chunk.start == 0]
    return [one.request for one in firsts if one.opens_request]


def _decode(plan: Plan[Sequence]) -> Decode | None:
    if not plan.decode:
        return None
    return Decode(
        tokens=np.array([member.payload.last for member in plan.decode]),
        starts=np.array([member.length for member in plan.decode], np.int64),
        sampling=tuple(member.payload.sampling for member in plan.decode),
    )


def _drawn(plan: Plan[Sequence], result: Result) -> "list[_Drawn]":
    """Every row's token with its member; rows are read before anybody leaves."""
    drawn = []
    if result.decode is not None:
        scores = result.decode.scores.tolist()
        drawn = list(map(_Drawn, plan.decode, result.decode.tokens, scores))
    if result.prefill is not None and plan.chunk is not None:
        token, score = result.prefill.tokens[0], float(result.prefill.scores[0])
        drawn.append(_Drawn(plan.chunk.member, token, score, result.no_speech))
    for join, one in zip(plan.joins, result.joins, strict=True):
        drawn.append(_Drawn(join.member, one.tokens[0], float(one.scores[0])))
    return drawn


@dataclass(slots=True)
class _Drawn:
    """A token of the step that has landed."""

    member: Member[Sequence]
    token: Tokens
    score: float
    no_speech: float = 0.0
    ended: str = ""
    """Why the sequence ended with it, if it did."""


@dataclass(frozen=True)
class _Flight:
    """A step under way. Nothing of its requests is ended before it has landed."""

    plan: Plan[Sequence]
    done: "Future[Result]"
    since: float


@dataclass(eq=False)
class _FollowUp:
    """Work between two sequences of one request, done off the loop."""

    request: Request
    work: Work
    error: StageError | None = None
    """What its request will be failed with as soon as the work has returned."""

    def run(self) -> Sequence:
        """The work, unless its request is lost already."""
        self.check()
        return self.work()

    def check(self) -> None:
        """Raise the error of a request that is lost."""
        if self.error is not None:
            raise self.error


@dataclass(frozen=True)
class _Followed:
    follow_up: _FollowUp
    done: "Future[Sequence]"
