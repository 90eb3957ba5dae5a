"""The autoregressive loop: schedule, run, commit, deliver."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from python_backends.ar_loop.sequence import Sequence, Task, Work
from python_backends.ar_loop.settings import LoopSettings
from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Request, Wake
from python_backends.bridge.inbox import Event
from python_backends.errors import Cancelled, InvalidInput, Overloaded, StageError, StageFailed
from python_backends.scheduling.continuous import ContinuousBatch, Member, Plan
from python_backends.slot_engine.command import (
    RESTART,
    Command,
    Decode,
    Prefill,
    Result,
    StepEngine,
)

DEFAULT_STEP_S = 0.02


class DecodeLoop:
    """Continuous batching of one task on one engine."""

    def __init__(
        self,
        task: Task,
        engine: StepEngine,
        settings: LoopSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.batch: ContinuousBatch[Sequence] = ContinuousBatch(
            settings.slots, settings.capacity, settings.prefill_chunk
        )
        self._task = task
        self._engine = engine
        self._settings = settings
        self._clock = clock
        self._number = RESTART
        self._step_s = DEFAULT_STEP_S
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="follow-up")
        self._following: set[_FollowUp] = set()

    def run(self, inbox: Inbox) -> None:
        """Serve until closed; waits only when no sequence is open."""
        self._inbox = inbox
        try:
            while all(map(self._serve, inbox.take(0 if self.batch.members() else None))):
                self.step()
        finally:
            self._worker.shutdown(cancel_futures=True)

    def step(self) -> None:
        """Advance every running sequence by one token, and one prompt by one chunk."""
        self._drop_deserted()
        plan = self.batch.plan()
        if plan is None:
            return
        try:
            result = self._timed(self._command(plan))
        except StageError as error:
            self._abort(error)
            return
        self.batch.commit(plan)
        self._deliver(plan, result)

    def cancel(self, turn: str) -> None:
        """Take a turn out between two steps and answer its requests."""
        open_requests = [member.payload.request for member in self.batch.members()]
        open_requests += [follow_up.request for follow_up in self._following]
        for request in {one for one in open_requests if one.turn == turn}:
            self._end(request, Cancelled("the turn was cancelled"))
        self._task.abandon(turn)

    def _serve(self, event: Event) -> bool:
        """Handle one event; False ends the loop."""
        match event:
            case Arrived(request):
                self._open(request)
            case CancelTurn(turn):
                self.cancel(turn)
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
            self._join(self._task.open(request))
        except StageError as error:
            self._lose(request, error)

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
        return Command(number, plan.moves, self._prefill(plan), self._decode(plan))

    def _prefill(self, plan: Plan[Sequence]) -> Prefill | None:
        if plan.chunk is None:
            return None
        chunk, one = plan.chunk, plan.chunk.member.payload
        return Prefill(
            row=chunk.row,
            start=chunk.start,
            tokens=one.prompt[chunk.start : chunk.start + chunk.count],
            is_last=chunk.is_last,
            sampling=one.sampling,
            context=one.context if chunk.start == 0 else {},
        )

    def _decode(self, plan: Plan[Sequence]) -> Decode | None:
        if not plan.decode:
            return None
        return Decode(
            tokens=np.stack([member.payload.last for member in plan.decode]),
            starts=np.array([member.length for member in plan.decode], np.int64),
            sampling=tuple(member.payload.sampling for member in plan.decode),
        )

    def _timed(self, command: Command) -> Result:
        start = self._clock()
        result = self._engine.run(command)
        self._step_s += 0.05 * (self._clock() - start - self._step_s)
        return result

    def _deliver(self, plan: Plan[Sequence], result: Result) -> None:
        """Give every row's token to its sequence; rows are read before anybody leaves."""
        if result.decode is not None:
            drawn = result.decode
            for row, member in enumerate(plan.decode):
                self._take(member, drawn.tokens[row], float(drawn.scores[row]), 0.0)
        if result.prefill is not None and plan.chunk is not None:
            drawn = result.prefill
            token, score = drawn.tokens[0], float(drawn.scores[0])
            self._take(plan.chunk.member, token, score, result.no_speech)

    def _take(
        self,
        member: Member[Sequence],
        token: "np.ndarray[tuple[int], np.dtype[np.int64]]",
        score: float,
        no_speech: float,
    ) -> None:
        if member not in self.batch.rows:
            return  # another sequence of its request has failed in this step
        one = member.payload
        try:
            if token[0] < 0:
                raise StageFailed("the model's numbers were not finite")
            stopped = one.take(token, score, no_speech)
            if stopped or member.exhausted:
                self.batch.leave(member)
                self._follow_up(one.request, one.close("stop" if stopped else "length"))
        except StageError as error:
            self._lose(one.request, error)

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
            self._lose(follow_up.request, error)

    def _abort(self, error: StageError) -> None:
        """A failed command ends everybody whose row it may have touched; the rest goes on."""
        self._number = RESTART
        for member in self.batch.abort():
            self._lose(member.payload.request, StageFailed(error.message, stage=error.stage))

    def _lose(self, request: Request, error: StageError) -> None:
        """A request fails, and its turn with it."""
        self._end(request, error)
        self._task.abandon(request.turn)

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

    def _drop_deserted(self) -> None:
        """Sequences whose caller is gone; none whose request has ended is ever run."""
        for member in self.batch.members():
            request = member.payload.request
            if not request.is_open:
                self.batch.leave(member)
            elif request.cancelled:
                self.cancel(request.turn)


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
