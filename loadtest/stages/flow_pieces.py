"""Pieces for the flow decoder, and the product's schedulers driven by hand."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from statistics import median

import numpy as np
from numpy.typing import NDArray

from deploy.repositories import read_models
from loadtest.engine.figures import ratio
from loadtest.load.punctuality import percentile
from loadtest.stages.flow_graphs import CONDITION, REPOSITORY, STEP
from python_backends.diffusion_lock.graphs import Call, FlowGraphs
from python_backends.diffusion_lock.score import Key, Score, to_score
from python_backends.diffusion_lock.sharing import Interleaved, Locked, Sharing
from python_backends.diffusion_lock.solver import SHORTCUT, SHORTCUT_STEPS, SOLVERS, stride
from python_backends.errors import StageError
from python_backends.speech import PHONEMES, PITCHES

LOCK, INTERLEAVE, ALONE = "lock", "interleave", "alone"
MODES = (LOCK, INTERLEAVE, ALONE)
EQUAL, MIXED = "equal", "mixed"
KEYS = (EQUAL, MIXED)
REQUESTS = (1, 2, 4, 8, 16)
"""Pieces of a run whose pieces are counted."""

WAYS = [
    (solver, steps)
    for solver in sorted(SOLVERS)
    for steps in (2, 4, 8)
    if solver != SHORTCUT or steps in SHORTCUT_STEPS
]
"""Solvers and steps of mixed keys."""

MAX_FRAMES = 1600
PATIENCE_S = 0.5
TICKS = 8
"""Frames of a phoneme; what is said changes no time."""


@dataclass(eq=False)
class Piece:
    """One request: a first piece of an answer."""

    score: Score | None
    key: Key | None
    seed: int
    number: int = 0
    at_s: float = 0.0
    done_s: float = 0.0
    error: StageError | None = None
    frames: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Cell:
    """One run of some pieces under one scheduler."""

    p50_ms: float
    p95_ms: float
    """Of the time from arrival to first chunk."""

    pieces_per_s: float


@cache
def shipped(parameter: str) -> str:
    """A parameter of the model `acoustic`."""
    return read_models([REPOSITORY], {})["acoustic"].parameters[parameter]


def scheduler(mode: str, call: Call, max_batch: int) -> Sharing[Piece]:
    """Of `lock`, `interleave`, or `alone`, which is the lock with batches of one."""
    kind = Interleaved[Piece] if mode == INTERLEAVE else Locked[Piece]
    most = 1 if mode == ALONE else max_batch
    return kind(FlowGraphs(call, CONDITION, STEP), max_batch=most, patience_s=PATIENCE_S)


def serve(
    sharing: Sharing[Piece],
    given: Sequence[Piece],
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Decode pieces that arrive at their `at_s`; sets their frames and `done_s`.

    The StageError of a piece is raised: a figure with a failed piece in it is none.
    """
    coming = sorted(given, key=lambda one: one.at_s)
    now = 0.0
    while coming or sharing.waiting:
        while coming and coming[0].at_s <= now:
            sharing.add(coming.pop(0), now)
        work = sharing.start(now)
        if work is None:
            now = coming[0].at_s
            continue
        began = clock()
        outcomes = work.run()
        now += clock() - began
        sharing.finish()
        for one, outcome in zip(work.members, outcomes, strict=True):
            if isinstance(outcome, StageError):
                raise outcome
            if outcome is not None:
                one.frames, one.done_s = outcome, now


def pieces(keys: str, count: int, seed: int) -> list[Piece]:
    """Pieces of one key, or of several buckets, numbers of steps and solvers."""
    random = Random(seed)
    return [_piece(random, number, keys) for number in range(count)]


def _piece(random: Random, number: int, keys: str) -> Piece:
    phonemes = random.choice((9, 18, 27)) if keys == MIXED else 18
    rows = [
        (random.randrange(1, PHONEMES), TICKS, random.randrange(PITCHES)) for _ in range(phonemes)
    ]
    one_way = (shipped("solver"), int(shipped("steps")))
    solver, steps = random.choice(WAYS) if keys == MIXED else one_way
    prosody = np.array([rows], np.int32)
    score = to_score(prosody, MAX_FRAMES, voice=0, stride=stride(solver, steps))
    return Piece(score, Key(score.bucket(MAX_FRAMES), steps, solver), seed=number)


def mode_figures(
    prefix: str, where: str, name: str, values: Mapping[str, Sequence[float]]
) -> dict[str, float | None]:
    """Of a figure that every mode has one of a round: medians, and ratios between schedulers."""
    found: dict[str, float | None] = {
        f"{prefix}_{mode}_{where}_{name}": median(values[mode]) for mode in MODES
    }
    for above, below in ((INTERLEAVE, LOCK), (LOCK, ALONE)):
        by = f"{prefix}_{above}_by_{below}_{where}_{name.removesuffix('_ms')}"
        found[by] = ratio(values[above], values[below])
    return found


def spread(given: Sequence[Piece], mean_gap_s: float, seed: int) -> None:
    """Let the pieces arrive as a Poisson process, the first one at 0."""
    random, now = Random(seed), 0.0
    for one in given:
        one.at_s = now
        now += random.expovariate(1 / mean_gap_s)


def evaluation_times(key: Key) -> list[float]:
    """When a piece alone asks for the velocity: times in [0, 1)."""
    count = key.steps * SOLVERS[key.solver].evaluations
    return [index / count for index in range(count)]


def cell_of(given: Sequence[Piece]) -> Cell:
    """Figures of pieces that were all served."""
    took_ms = [1e3 * (one.done_s - one.at_s) for one in given]
    lasted_s = max(one.done_s for one in given) - min(one.at_s for one in given)
    return Cell(percentile(took_ms, 0.5), percentile(took_ms, 0.95), len(given) / lasted_s)
