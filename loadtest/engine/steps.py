"""A decode step and a prompt: our engine, llama.cpp and CTranslate2, one thread on one core."""

import importlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from importlib.metadata import version
from pathlib import Path
from statistics import median

from rich.progress import Progress

from loadtest.engine.bare import Contestant, Ours, warm
from loadtest.engine.cores import pinned
from loadtest.engine.figures import Found, per_s, ratio, rotated

SLOTS, CAPACITY = 16, 640
ROWS = (1, 2, 4, 8, 16)
CONTEXTS = (64, 256, 500)
PROMPTS = (32, 64, 128, 256)
STEPS = 8
"""Of a cell in a round."""

OURS, LLAMA, CT2 = "ours", "llama_cpp", "ctranslate2"
WHEELS = {LLAMA: "cyllama", CT2: "ctranslate2"}
Cells = dict[tuple[str, int, int], list[float]]
"""(contestant, rows, context) -> ms of a step, one of each round."""


def steps(folder: Path, rounds: int, progress: Progress) -> Found:
    """Every contestant, every shape, in turns."""
    with pinned(), ExitStack() as stack:
        contestants, missing = _contestants(folder / "peers")
        for one in contestants.values():
            stack.enter_context(closing(one))
        cells = _stepped(contestants, rounds, progress)
        prompts = _prefilled(contestants, rounds, progress)
    return Found(
        figures=step_figures(cells) | prefill_figures(prompts),
        detail={
            "contestants": {name: version(WHEELS[name]) for name in contestants if name in WHEELS},
            "tokens_per_s": curves(cells),
            "step_ms": {f"{name}_n{rows}_c{c}": ms for (name, rows, c), ms in cells.items()},
            "prefill_ms": {f"{name}_{tokens}": ms for (name, _, tokens), ms in prompts.items()},
        },
        missing=missing,
    )


def _contestants(folder: Path) -> tuple[dict[str, Contestant], dict[str, str]]:
    """Those that are installed; why the others are not there."""
    found: dict[str, Contestant] = {OURS: Ours(SLOTS, CAPACITY)}
    missing: dict[str, str] = {}
    for name, make in _PEERS.items():
        try:
            importlib.import_module(WHEELS[name])
        except ImportError as fault:
            missing[name] = f"{WHEELS[name]} is not installed: {fault}"
        else:
            found[name] = make(folder)
    return found, missing


def _llama(folder: Path) -> Contestant:
    from loadtest.engine.llama_cpp import LlamaCpp

    return LlamaCpp(folder, SLOTS, CAPACITY)


def _ct2(folder: Path) -> Contestant:
    from loadtest.engine.ctranslate2_peer import CTranslate2

    return CTranslate2(folder)


_PEERS: dict[str, Callable[[Path], Contestant]] = {LLAMA: _llama, CT2: _ct2}


def _stepped(contestants: dict[str, Contestant], rounds: int, progress: Progress) -> Cells:
    cells: Cells = defaultdict(list)
    names = list(contestants)
    task = progress.add_task("steps", total=len(CONTEXTS) * rounds, told="")
    for context in CONTEXTS:
        progress.update(task, told=f"filling {SLOTS} rows of {context}")
        warm(list(contestants.values()), ROWS, context)
        for number in range(rounds):
            progress.update(task, told=f"context {context}, round {number + 1}")
            for rows in ROWS:
                for name in rotated(names, number):
                    took = contestants[name].steps(rows, context, STEPS)
                    cells[name, rows, context].append(median(took))
            progress.advance(task)
    return cells


def _prefilled(contestants: dict[str, Contestant], rounds: int, progress: Progress) -> Cells:
    """A prompt is one row; its tokens stand where a context does."""
    cells: Cells = defaultdict(list)
    names = list(contestants)
    task = progress.add_task("prompts", total=rounds, told="")
    for number in range(-1, rounds):
        for tokens in PROMPTS:
            for name in rotated(names, number):
                took = contestants[name].prefill(tokens)
                if number >= 0:
                    cells[name, 1, tokens].append(took)
        progress.update(task, completed=number + 1)
    return cells


def step_figures(cells: Cells) -> dict[str, float | None]:
    """ms and tokens/s of each cell, and ours by each peer's; None for a peer that is not there."""
    found: dict[str, float | None] = {}
    for rows in ROWS:
        for context in CONTEXTS:
            where = f"n{rows}_c{context}"
            for name in (OURS, LLAMA, CT2):
                took = cells.get((name, rows, context))
                found[f"step_{name}_{where}_ms"] = median(took) if took else None
                found[f"tokens_per_s_{name}_{where}"] = per_s(rows, median(took)) if took else None
            for peer in WHEELS:
                by = f"tokens_per_s_by_{peer}_{where}"
                found[by] = _by(cells, (peer, rows, context), (OURS, rows, context))
    return found


def prefill_figures(cells: Cells) -> dict[str, float | None]:
    """ms of each prompt, and the times of ours by each peer's."""
    found: dict[str, float | None] = {}
    for tokens in PROMPTS:
        for name in (OURS, LLAMA, CT2):
            took = cells.get((name, 1, tokens))
            found[f"prefill_{name}_{tokens}_ms"] = median(took) if took else None
        for peer in WHEELS:
            by = f"prefill_time_by_{peer}_{tokens}"
            found[by] = _by(cells, (OURS, 1, tokens), (peer, 1, tokens))
    return found


def _by(cells: Cells, above: tuple[str, int, int], below: tuple[str, int, int]) -> float | None:
    return ratio(cells[above], cells[below]) if above in cells and below in cells else None


def curves(cells: Cells) -> dict[str, dict[str, list[float]]]:
    """Context -> contestant -> tokens/s over ROWS."""
    names: Sequence[str] = list(dict.fromkeys(name for name, _, _ in cells))
    return {
        str(context): {
            name: [per_s(rows, median(cells[name, rows, context])) for rows in ROWS]
            for name in names
        }
        for context in CONTEXTS
    }
