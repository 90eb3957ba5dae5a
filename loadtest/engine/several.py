"""Several engines of one thread in one process, beside one of two threads."""

import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from threading import Barrier

from rich.progress import Progress

from loadtest.engine.bare import Ours, warm
from loadtest.engine.figures import Found, ratio, rotated

CAPACITY, CONTEXT, STEPS = 256, 128, 20
HALF, WHOLE = 8, 16
ROWS = (HALF, WHOLE)
TWO_SINGLE, ONE_DOUBLE, ONE_SINGLE = "two_single_n8", "one_double_n16", "one_single_n16"
Rates = dict[str, list[float]]
"""Contestant -> tokens/s of each round."""


def engines(folder: Path, rounds: int, progress: Progress) -> Found:
    """tokens/s of all rows together. Nobody is pinned: two threads are to find two cores."""
    first, second = Ours(WHOLE, CAPACITY), Ours(HALF, CAPACITY)
    double = Ours(WHOLE, CAPACITY, threads=2)
    warm([first, double], ROWS, CONTEXT)
    warm([second], (HALF,), CONTEXT)
    contestants: dict[str, Callable[[], float]] = {
        TWO_SINGLE: lambda: _together([first, second], HALF),
        ONE_DOUBLE: lambda: _together([double], WHOLE),
        "one_double_n8": lambda: _together([double], HALF),
        ONE_SINGLE: lambda: _together([first], WHOLE),
        "one_single_n8": lambda: _together([first], HALF),
    }
    rates: Rates = defaultdict(list)
    task = progress.add_task("engines", total=2 * rounds, told="")
    for number in range(2 * rounds):
        for name in rotated(list(contestants), number):
            rates[name].append(contestants[name]())
        progress.advance(task)
    return Found(engine_figures(rates), {"tokens_per_s": dict(rates)})


def _together(several: list[Ours], rows: int) -> float:
    """tokens/s of all, from their common start to the end of the last."""
    ready = Barrier(len(several) + 1)

    def decode(engine: Ours) -> float:
        ready.wait()
        engine.steps(rows, CONTEXT, STEPS)
        return time.perf_counter()

    with ThreadPoolExecutor(len(several)) as threads:
        ends = [threads.submit(decode, one) for one in several]
        ready.wait()
        began = time.perf_counter()
        seconds = max(end.result() for end in ends) - began
    return len(several) * rows * STEPS / seconds


def engine_figures(rates: Rates) -> dict[str, float | None]:
    """tokens/s of each, and of two engines of one thread by one of two, and by one of one."""
    return {
        **{f"engines_{name}_tokens_per_s": median(each) for name, each in rates.items()},
        "two_single_by_one_double": ratio(rates[TWO_SINGLE], rates[ONE_DOUBLE]),
        "two_single_by_one_single": ratio(rates[TWO_SINGLE], rates[ONE_SINGLE]),
    }
