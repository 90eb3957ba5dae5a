"""Streams that decode while a long prompt is prefilled, chunk by chunk: what they wait for.

The product's own batch and engine, commanded as the loop does, without a server.
"""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from rich.progress import Progress

from deploy.repositories import read_models
from loadtest.engine.bare import FIRST_TOKEN, STEP, prompt
from loadtest.engine.cores import pinned
from loadtest.engine.figures import (
    Found,
    Ordered,
    chunks_between_steps,
    commands_to_first_token,
    rotated,
)
from loadtest.load.punctuality import percentile
from python_backends.scheduling.continuous import Chunk, ContinuousBatch, Member, Plan
from python_backends.slot_engine.command import (
    GREEDY,
    RESTART,
    Command,
    Decode,
    Prefill,
    Result,
    Tokens,
)
from python_backends.slot_engine.engine import SlotPoolEngine

STREAMS, SLOTS, CAPACITY = 7, 8, 640
STREAM_PROMPT, NEWCOMER_PROMPT = 64, 400
COMPARED = {16, 12, 8}
"""Tokens of a chunk that are compared with that of the shipped `think`, which is judged."""

MODELS = Path(__file__).parents[2] / "model_repository"
ALONE_STEPS = 30
"""Of a round, before the newcomer."""

ALONE, BESIDE = "without a prompt", "beside a prompt"


@dataclass(eq=False)
class Stream:
    """One sequence: what it began with, and what it is fed next."""

    tokens: Tokens
    last: int = FIRST_TOKEN


@dataclass(frozen=True)
class Round:
    """The commands of a round, and of these the ones from the newcomer's arrival on."""

    trace: list[Ordered]
    newcomer: list[Ordered]


class Loop:
    """Plan, run, commit; every command is noted."""

    def __init__(self, chunk: int) -> None:
        self.batch: ContinuousBatch[Stream] = ContinuousBatch(SLOTS, CAPACITY, chunk)
        self.trace: list[Ordered] = []
        self._engine = SlotPoolEngine(STEP, slots=SLOTS, capacity=CAPACITY)
        self._number = RESTART
        self._landed = time.perf_counter()

    def join(self, tokens: int) -> Member[Stream]:
        """Queue a prompt of so many tokens; its answer ends when it is taken out."""
        member = Member(Stream(prompt(tokens)), prompt=tokens, max_new=CAPACITY)
        self.batch.join(member)
        return member

    def step(self) -> None:
        """One command."""
        plan = self.batch.plan()
        assert plan is not None, "nobody is there"
        assert not plan.joins, "only one prompt at a time is commanded here"
        result = self._engine.run(self._command(plan))
        self.batch.commit(plan)
        _feed(plan, result)
        landed, self._landed = self._landed, time.perf_counter()
        self._note(plan, 1e3 * (self._landed - landed))

    def round(self) -> Round:
        """The streams begin again; then they decode alone, then beside a newcomer."""
        self._begin()
        for _ in range(ALONE_STEPS):
            self.step()
        newcomer = self.join(NEWCOMER_PROMPT)
        while newcomer not in self.batch.rows:
            self.step()
        trace = list(self.trace)
        return Round(trace, trace[ALONE_STEPS:])

    def _begin(self) -> None:
        for member in self.batch.members():
            self.batch.leave(member)
        for _ in range(STREAMS):
            self.join(STREAM_PROMPT)
        while len(self.batch.rows) < STREAMS:
            self.step()
        self.trace.clear()

    def _command(self, plan: Plan[Stream]) -> Command:
        number, self._number = self._number, self._number + 1
        return Command(
            number,
            moves=plan.moves,
            prefill=None if plan.chunk is None else _prefill(plan.chunk),
            decode=_decode(plan),
        )

    def _note(self, plan: Plan[Stream], gap_ms: float) -> None:
        chunks = [*([plan.chunk] if plan.chunk else []), *plan.joins]
        ended = any(chunk.is_last for chunk in chunks)
        self.trace.append(Ordered(len(chunks), len(plan.decode), gap_ms, ended))


def beside(folder: Path, rounds: int, progress: Progress) -> Found:
    """In every round the streams decode alone, then beside a newcomer's prompt."""
    chunks = sorted(COMPARED | {shipped_chunk()})
    loops = {chunk: Loop(chunk) for chunk in chunks}
    found: dict[int, list[Round]] = {chunk: [] for chunk in chunks}
    task = progress.add_task("a prompt beside streams", total=2 * rounds, told="")
    with pinned():
        for number in range(2 * rounds):
            for chunk in rotated(chunks, number):
                found[chunk].append(loops[chunk].round())
            progress.advance(task)
    figures: dict[str, float | None] = {}
    for chunk, each in found.items():
        figures |= beside_figures(chunk, each)
    gaps_ms = {
        chunk: {ALONE: alone(each), BESIDE: beside_prompt(each)} for chunk, each in found.items()
    }
    return Found(figures, {"gaps_ms": gaps_ms})


def shipped_chunk() -> int:
    """Of `think` as it is shipped."""
    return int(read_models([MODELS], {})["think"].parameters["prefill_chunk"])


def beside_figures(chunk: int, rounds: list[Round]) -> dict[str, float | None]:
    """Gaps of a stream with a chunk before its step and without one; the count of the commands.

    The 99th percentile is that of the prompt's chunks, of each the median of the rounds; pooled, it
    holds what the machine adds now and then as well, which the streams alone show too.
    """
    without = alone(rounds)
    step_ms, gaps_ms = median(without), _medians(rounds)
    p50_ms, p99_ms = median(gaps_ms), percentile(gaps_ms, 0.99)
    pooled_ms, alone_p99_ms = percentile(beside_prompt(rounds), 0.99), percentile(without, 0.99)
    commands = max(commands_to_first_token(one.newcomer) for one in rounds)
    found = {
        "step_ms": step_ms,
        "gap_p50_ms": p50_ms,
        "gap_p99_ms": p99_ms,
        "gap_p50_by_step": p50_ms / step_ms,
        "gap_p99_by_step": p99_ms / step_ms,
        "gap_p99_pooled_by_step": pooled_ms / step_ms,
        "step_p99_alone_by_step": alone_p99_ms / step_ms,
        "chunks_between_steps": max(chunks_between_steps(one.trace) for one in rounds),
        "commands_beyond_chunks": commands - math.ceil(NEWCOMER_PROMPT / chunk),
    }
    return {f"beside_{chunk}_{name}": float(value) for name, value in found.items()}


def _medians(rounds: list[Round]) -> list[float]:
    """ms beside each chunk of the prompt, median of the rounds."""
    each = zip(*(beside_prompt([one]) for one in rounds), strict=True)
    return [median(values) for values in each]


def alone(rounds: list[Round]) -> list[float]:
    """ms of every step of the streams without a chunk before it."""
    trace = [one for each in rounds for one in each.trace]
    return [one.gap_ms for one in trace if not one.chunks and one.rows == STREAMS]


def beside_prompt(rounds: list[Round]) -> list[float]:
    """ms of every step of the streams with a chunk before it."""
    return [one.gap_ms for each in rounds for one in each.trace if one.chunks]


def _prefill(chunk: Chunk[Stream]) -> Prefill:
    tokens = chunk.member.payload.tokens[chunk.start : chunk.start + chunk.count]
    return Prefill(row=chunk.row, start=chunk.start, tokens=tokens, is_last=chunk.is_last)


def _decode(plan: Plan[Stream]) -> Decode | None:
    if not plan.decode:
        return None
    return Decode(
        tokens=np.array([member.payload.last for member in plan.decode], np.int64),
        starts=np.array([member.length for member in plan.decode], np.int64),
        sampling=(GREEDY,) * len(plan.decode),
    )


def _feed(plan: Plan[Stream], result: Result) -> None:
    if result.decode is not None:
        for member, token in zip(plan.decode, result.decode.tokens[:, 0], strict=True):
            member.payload.last = int(token)
    if result.prefill is not None and plan.chunk is not None:
        plan.chunk.member.payload.last = int(result.prefill.tokens[0, 0])
