"""One engine with its slots: commands out, one at a time, and what landed back in."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from python_backends.ar_loop.sequence import Sequence
from python_backends.scheduling.continuous import Chunk, ContinuousBatch, Member, Plan
from python_backends.scheduling.prefixes import Match, Prefix
from python_backends.slot_engine.command import (
    RESTART,
    Command,
    Decode,
    Keep,
    Prefill,
    Restore,
    Result,
    StepEngine,
    Tokens,
)


@dataclass(slots=True)
class Drawn:
    """A token of the step that has landed, and the row that it was drawn for."""

    member: Member[Sequence]
    row: int
    token: Tokens
    score: float
    no_speech: float = 0.0
    ended: str = ""
    """Why the sequence ended with it, if it did."""


@dataclass(frozen=True)
class Flight:
    """A command under way. Nothing of its requests is ended before it has landed."""

    plan: Plan[Sequence]
    done: "Future[Result]"
    since: float
    kept: tuple[Prefix, ...]
    gap_s: float | None
    """How long the engine had stood still since the command before; None after a rest."""


class Lane:
    """The batch of one engine, and the command that is being run on it."""

    def __init__(
        self,
        engine: StepEngine,
        batch: ContinuousBatch[Sequence],
        clock: Callable[[], float],
        name: str,
    ) -> None:
        self.batch = batch
        self.flight: Flight | None = None
        self._clock = clock
        self._idle_since: float | None = None
        self._engine = engine
        self._number = RESTART
        self._keeps: list[tuple[Prefix, int]] = []
        self._lost: tuple[Prefix, ...] = ()
        """Were to be written by the command that landed last."""
        self._compute = ThreadPoolExecutor(1, thread_name_prefix=name)

    @property
    def has_landed(self) -> bool:
        """The command under way is done, well or not."""
        return self.flight is not None and self.flight.done.done()

    @property
    def ran_until_s(self) -> float:
        """When the engine was done with the command that landed last, until the next is launched:
        the loop may see to it later, and that is no part of the step."""
        return self._clock() if self._idle_since is None else self._idle_since

    def keep(self, prefix: Prefix, row: int) -> None:
        """Have a row stored with the next command, which is before it can be overwritten."""
        self._keeps.append((prefix, row))

    def launch(
        self, dropped: Callable[[], list[int]], on_landed: Callable[[object], object]
    ) -> Flight | None:
        """Have the next command computed, if there is one, and with it the store forget what is
        `dropped`; `on_landed` is called when it is done, on another thread."""
        idle_since, self._idle_since = self._idle_since, None
        plan = self.batch.plan()
        if plan is None:
            if not self._keeps:
                return None
            plan = Plan((), None, ())
        command = self._command(plan, dropped())
        kept = tuple(prefix for prefix, _ in self._keeps)
        self._keeps = []
        now = self._clock()
        gap_s = None if idle_since is None else now - idle_since
        done = self._compute.submit(self._run, command)
        self.flight = Flight(plan, done, now, kept, gap_s)
        done.add_done_callback(on_landed)
        return self.flight

    def _run(self, command: Command) -> Result:
        try:
            return self._engine.run(command)
        finally:
            self._idle_since = self._clock()

    def land(self) -> list[Drawn]:
        """Account for the command that is done: the token of every row. StageError, as the engine
        raised it, when it failed; `abort` is due then."""
        flight, self.flight = self.flight, None
        assert flight is not None
        self._lost = flight.kept
        result = flight.done.result()
        self.batch.commit(flight.plan)
        for prefix in flight.kept:
            prefix.is_stored = True
        return _drawn(flight.plan, result)

    def abort(self) -> tuple[list[Member[Sequence]], list[Prefix]]:
        """After a command that failed: who is lost with it, and which prefixes. Numbers begin
        anew."""
        self._number = RESTART
        lost = [*self._lost, *(prefix for prefix, _ in self._keeps)]
        self._keeps = []
        return self.batch.abort(), lost

    def close(self) -> None:
        """End the thread."""
        self._compute.shutdown()

    def _command(self, plan: Plan[Sequence], drops: list[int]) -> Command:
        number = self._number
        self._number += 1
        return Command(
            number,
            plan.moves,
            prefill=_prefill(plan.chunk) if plan.chunk is not None else None,
            decode=_decode(plan),
            joins=tuple(_prefill(join) for join in plan.joins),
            keeps=tuple(Keep(prefix.key, row, len(prefix.tokens)) for prefix, row in self._keeps),
            drops=tuple(drops),
        )


def _prefill(chunk: Chunk[Sequence]) -> Prefill:
    one = chunk.member.payload
    return Prefill(
        row=chunk.row,
        start=chunk.start,
        tokens=one.prompt[chunk.start : chunk.start + chunk.count],
        is_last=chunk.is_last,
        sampling=one.sampling,
        context=one.context if chunk.start == 0 else {},
        restore=_restore(one.match) if chunk.is_first else None,
    )


def _restore(match: Match | None) -> Restore | None:
    return None if match is None else Restore(match.prefix.key, match.length)


def _decode(plan: Plan[Sequence]) -> Decode | None:
    if not plan.decode:
        return None
    return Decode(
        tokens=np.array([member.payload.last for member in plan.decode]),
        starts=np.array([member.length for member in plan.decode], np.int64),
        sampling=tuple(member.payload.sampling for member in plan.decode),
    )


def _drawn(plan: Plan[Sequence], result: Result) -> list[Drawn]:
    """Every row's token with its member; rows are read before anybody leaves."""
    drawn = []
    if result.decode is not None:
        scores = result.decode.scores.tolist()
        rows = range(len(plan.decode))
        drawn = list(map(Drawn, plan.decode, rows, result.decode.tokens, scores))
    if result.prefill is not None and plan.chunk is not None:
        token, score = result.prefill.tokens[0], float(result.prefill.scores[0])
        drawn.append(Drawn(plan.chunk.member, plan.chunk.row, token, score, result.no_speech))
    for join, one in zip(plan.joins, result.joins, strict=True):
        drawn.append(Drawn(join.member, join.row, one.tokens[0], float(one.scores[0])))
    return drawn
