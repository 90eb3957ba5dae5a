"""The flow decoder shared in locked batches, by interleaved steps, and not at all.

The product's own schedulers on the shipped graphs, one thread on one core. Time is virtual where
nobody computes and real where somebody does, so a round lasts no longer than its computing. A first
chunk is there as soon as its piece is decoded; what Triton adds to every call is not part of it.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from statistics import median

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from deploy.repositories import read_models
from loadtest.engine.cores import pinned
from loadtest.engine.figures import Found, percentile, ratio, rotated
from loadtest.stages.flow_graphs import (
    CONDITION,
    REPOSITORY,
    STEP,
    Graphs,
    lock_violations,
    step_violations,
)
from python_backends.diffusion_lock.graphs import FlowGraphs
from python_backends.diffusion_lock.score import Key, Score, to_score
from python_backends.diffusion_lock.sharing import Interleaved, Locked, Sharing
from python_backends.diffusion_lock.solver import SOLVERS
from python_backends.errors import StageError
from python_backends.speech import PHONEMES, PITCHES

LOCK, INTERLEAVE, ALONE = "lock", "interleave", "alone"
MODES = (LOCK, INTERLEAVE, ALONE)
EQUAL, MIXED = "equal", "mixed"
KEYS = (EQUAL, MIXED)
BURST, POISSON = "burst", "poisson"
ARRIVALS = (BURST, POISSON)
REQUESTS = (1, 2, 4, 8, 16)
JUDGED = 16
"""Requests of the cells whose figures are told; the others are in the detail."""

LOAD = 0.8
"""Of what one piece at a time can bear: Poisson arrivals come so often."""

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


Where = tuple[str, str, str, int]
"""(mode, keys, arrivals, requests)."""

Cells = dict[Where, list[Cell]]
"""One cell of each round."""


@dataclass
class Laws:
    """What must hold whatever the times."""

    lock_violations: int = 0
    step_violations: int = 0
    max_difference: float = 0.0
    """Of any value of a piece's frames from those of the piece alone."""

    def far(self, difference: float) -> None:
        """A piece was so far from itself alone."""
        self.max_difference = max(self.max_difference, difference)


def flow(folder: Path, rounds: int, progress: Progress) -> Found:
    """Every scheduler, load and mix of keys, in turns; a round before the first warms up."""
    with pinned():
        bench = _Bench(Graphs())
        task = progress.add_task("flow", total=rounds + 1, told="")
        for number in range(-1, rounds):
            progress.update(task, told=f"round {number + 1}" if number >= 0 else "warming up")
            bench.round(number)
            progress.advance(task)
    return Found(
        figures=law_figures(bench.laws) | cell_figures(bench.cells),
        detail={"max_batch": bench.max_batch, "cells": told(bench.cells)},
    )


class _Bench:
    """Cells and laws of all rounds so far."""

    def __init__(self, graphs: Graphs) -> None:
        self.cells: Cells = defaultdict(list)
        self.laws = Laws()
        self.max_batch = int(shipped("max_batch"))
        self._graphs = graphs
        self._piece_s: dict[str, float] = {}

    def round(self, number: int) -> None:
        """All cells. A round before the first is not kept, and tells how often pieces may come."""
        for keys in KEYS:
            for requests in REQUESTS:
                for arrivals in ARRIVALS if number >= 0 else (BURST,):
                    self._compare(keys, arrivals, requests, number)

    def _compare(self, keys: str, arrivals: str, requests: int, number: int) -> None:
        """The same pieces under each scheduler."""
        seed = requests + 100 * (number + 1)
        frames: dict[str, list[NDArray[np.float32]]] = {}
        for mode in rotated(MODES, number + 1):
            given = pieces(keys, requests, seed)
            if arrivals == POISSON:
                spread(given, self._piece_s[keys] / LOAD, seed)
            cell = self._run(mode, given)
            frames[mode] = [one.frames for one in given if one.frames is not None]
            if number >= 0:
                self.cells[mode, keys, arrivals, requests].append(cell)
            elif mode == ALONE:
                self._piece_s[keys] = 1 / cell.pieces_per_s
        for mode in (LOCK, INTERLEAVE):
            self.laws.far(largest_difference(frames[mode], frames[ALONE]))

    def _run(self, mode: str, given: Sequence[Piece]) -> Cell:
        self._graphs.calls.clear()
        serve(self._sharing(mode), given)
        if mode == LOCK:
            self.laws.lock_violations += lock_violations(self._graphs.calls)
        expected = [evaluation_times(one.key) for one in given if one.key is not None]
        self.laws.step_violations += step_violations(self._graphs.calls, expected)
        return cell_of(given)

    def _sharing(self, mode: str) -> Sharing[Piece]:
        kind = Interleaved[Piece] if mode == INTERLEAVE else Locked[Piece]
        most = 1 if mode == ALONE else self.max_batch
        graphs = FlowGraphs(self._graphs, CONDITION, STEP)
        return kind(graphs, max_batch=most, patience_s=PATIENCE_S)


@cache
def shipped(parameter: str) -> str:
    """A parameter of the model `acoustic`."""
    return read_models([REPOSITORY], {})["acoustic"].parameters[parameter]


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
    score = to_score(np.array([rows], np.int32), MAX_FRAMES)
    steps = random.choice((2, 4, 8)) if keys == MIXED else int(shipped("steps"))
    solver = random.choice(sorted(SOLVERS)) if keys == MIXED else shipped("solver")
    return Piece(score, Key(score.bucket(MAX_FRAMES), steps, solver), seed=number)


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


def largest_difference(
    some: Sequence[NDArray[np.float32]], others: Sequence[NDArray[np.float32]]
) -> float:
    """Between any two values of the same piece."""
    pairs = zip(some, others, strict=True)
    return max(float(np.abs(one - other).max()) for one, other in pairs)


def law_figures(laws: Laws) -> dict[str, float | None]:
    """Zeros, and the largest difference from a piece alone."""
    return {
        "flow_lock_violations": laws.lock_violations,
        "flow_step_violations": laws.step_violations,
        "flow_max_difference": laws.max_difference,
    }


def cell_figures(cells: Cells) -> dict[str, float | None]:
    """Of JUDGED requests: first chunk p50 and p95, pieces/s, and ratios between schedulers."""
    found: dict[str, float | None] = {}
    for keys in KEYS:
        for arrivals in ARRIVALS:
            where = f"{keys}_{arrivals}_n{JUDGED}"
            of = {mode: cells[mode, keys, arrivals, JUDGED] for mode in MODES}
            for name in ("p50_ms", "p95_ms", "pieces_per_s"):
                values = {mode: [getattr(cell, name) for cell in of[mode]] for mode in MODES}
                for mode in MODES:
                    found[f"flow_{mode}_{where}_{name}"] = median(values[mode])
                for above, below in ((INTERLEAVE, LOCK), (LOCK, ALONE)):
                    by = f"flow_{above}_by_{below}_{where}_{name.removesuffix('_ms')}"
                    found[by] = ratio(values[above], values[below])
    return found


def told(cells: Cells) -> dict[str, dict[str, float]]:
    """Medians of every cell."""
    return {
        f"{mode}_{keys}_{arrivals}_n{requests}": {
            "p50_ms": median(cell.p50_ms for cell in rounds),
            "p95_ms": median(cell.p95_ms for cell in rounds),
            "pieces_per_s": median(cell.pieces_per_s for cell in rounds),
        }
        for (mode, keys, arrivals, requests), rounds in cells.items()
    }
