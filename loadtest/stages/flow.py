"""The flow decoder shared in locked batches, by interleaved steps, and not at all.

The product's own schedulers on the shipped graphs, one thread on one core. Time is virtual where
nobody computes and real where somebody does, so a round lasts no longer than its computing. A first
chunk is there as soon as its piece is decoded; what Triton adds to every call is not part of it.

On a CPU a row costs nearly as much beside others as alone, so that little is gained by sharing. The
same schedulers are therefore also run in virtual time on the emulated device, where more can be.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from loadtest.engine.cores import pinned
from loadtest.engine.figures import Found, rotated
from loadtest.seed.figures import Target, at_most
from loadtest.stages.flow_device import on_device
from loadtest.stages.flow_graphs import Graphs, lock_violations, step_violations
from loadtest.stages.flow_pieces import (
    ALONE,
    INTERLEAVE,
    KEYS,
    LOCK,
    MODES,
    REQUESTS,
    Cell,
    Piece,
    cell_of,
    evaluation_times,
    mode_figures,
    pieces,
    scheduler,
    serve,
    shipped,
    spread,
)

BURST, POISSON = "burst", "poisson"
ARRIVALS = (BURST, POISSON)
JUDGED = 16
"""Requests of the cells whose figures are told; the others are in the detail."""

LOAD = 0.8
"""Of what one piece at a time can bear: Poisson arrivals come so often."""

TARGETS: dict[str, Target] = {
    "flow_lock_violations": at_most(0),
    "flow_step_violations": at_most(0),
    "flow_max_difference": at_most(1e-4),
}

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
        figures=law_figures(bench.laws) | cell_figures(bench.cells) | on_device(rounds),
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
        serve(scheduler(mode, self._graphs, self.max_batch), given)
        if mode == LOCK:
            self.laws.lock_violations += lock_violations(self._graphs.calls)
        expected = [evaluation_times(one.key) for one in given if one.key is not None]
        self.laws.step_violations += step_violations(self._graphs.calls, expected)
        return cell_of(given)


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
                found |= mode_figures("flow", where, name, values)
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
