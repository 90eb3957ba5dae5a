"""What a server leaves of the engine's speed: the gap between its steps, and tokens/s."""

from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, median

from rich.progress import Progress

from loadtest.engine.bare import Ours, warm
from loadtest.engine.figures import Found, gap, per_s, ratio, rotated
from loadtest.engine.serving import LONGEST_PROMPT, PURE_STEPS, Endless, burst_context, endless

CAPACITY = LONGEST_PROMPT + 64
BARE = "bare"
ENGINES = ("bls", "in_process")
GAP_SLOTS, GAP_ROWS = 32, (8, 32)
SERVED_SLOTS, SERVED_ROWS = 16, (1, 2, 4, 8, 16)
UNTIMED_STEPS = 4
"""After a rest the first steps find cold caches; a server's are in the middle of many."""

MAX_BLS_SHARE = 0.03
"""What BLS may cost of a step; an engine in the loop's own process is due beyond."""

Intervals = dict[tuple[str, int], list[float]]
"""(contestant, rows) -> ms from step to step, the mean of each round."""


def gaps(folder: Path, rounds: int, progress: Progress) -> Found:
    """The engine behind BLS, in the loop's own process, and bare: ms from step to step."""
    with ExitStack() as stack:
        servers = {
            engine: stack.enter_context(
                endless(GAP_SLOTS, CAPACITY, engine=engine, session_bytes="0")
            )
            for engine in ENGINES
        }
        took, _ = _measured(servers, Ours(GAP_SLOTS, CAPACITY), GAP_ROWS, rounds, progress)
    return Found(gap_figures(took), {"intervals_ms": _plain(took)})


def served(folder: Path, rounds: int, progress: Progress) -> Found:
    """Concurrent answers of the product's own engine, and the engine bare."""
    with endless(SERVED_SLOTS, CAPACITY) as server:
        took, whole = _measured(
            {"served": server}, Ours(SERVED_SLOTS, CAPACITY), SERVED_ROWS, rounds, progress
        )
    figures = served_figures(took)
    for rows in SERVED_ROWS:
        figures[f"served_with_prompts_n{rows}_tokens_per_s"] = median(whole["served", rows])
    return Found(figures, {"intervals_ms": _plain(took)})


def _measured(
    servers: dict[str, Endless],
    bare: Ours,
    rows: tuple[int, ...],
    rounds: int,
    progress: Progress,
) -> tuple[Intervals, Intervals]:
    """ms from step to step, and the callers' tokens/s with prompts. A server that is not asked
    computes nothing, so all of them may be there at once."""
    took: Intervals = defaultdict(list)
    whole: Intervals = defaultdict(list)
    warm([bare], rows, burst_context(rows[-1]))
    for one in servers.values():
        one.burst(rows[-1])
    task = progress.add_task(" and ".join(servers), total=rounds * len(rows), told="")
    for number in range(rounds):
        for count in rows:
            progress.update(task, told=f"{count} rows, round {number + 1}")
            for name in rotated([BARE, *servers], number):
                if name == BARE:
                    took[name, count].append(_bare_step_ms(bare, count))
                else:
                    burst = servers[name].burst(count)
                    took[name, count].append(burst.interval_ms)
                    whole[name, count].append(burst.tokens_per_s)
            progress.advance(task)
    return took, whole


def _bare_step_ms(bare: Ours, rows: int) -> float:
    """Mean of steps around the context that those of a burst have, the first ones untimed."""
    timed = PURE_STEPS // 2
    start = burst_context(rows) - timed // 2 - UNTIMED_STEPS
    return fmean(bare.steps(rows, start, UNTIMED_STEPS + timed)[UNTIMED_STEPS:])


def gap_figures(took: Intervals) -> dict[str, float | None]:
    """Of each engine: step to step, computing, the gap and its share; and what BLS costs."""
    found: dict[str, float | None] = {}
    for rows in GAP_ROWS:
        bare = took[BARE, rows]
        found[f"gap_bare_n{rows}_step_ms"] = median(bare)
        for engine in ENGINES:
            pairs = zip(took[engine, rows], bare, strict=True)
            each = [gap(interval, alone) for interval, alone in pairs]
            found[f"gap_{engine}_n{rows}_interval_ms"] = median(took[engine, rows])
            found[f"gap_{engine}_n{rows}_ms"] = median(one["gap_ms"] for one in each)
            found[f"gap_{engine}_n{rows}_share"] = median(one["gap_share"] for one in each)
    costs = {rows: ratio(took["bls", rows], took["in_process", rows]) - 1 for rows in GAP_ROWS}
    found |= {f"bls_costs_n{rows}_share": share for rows, share in costs.items()}
    found["in_process_is_due"] = float(max(costs.values()) > MAX_BLS_SHARE)
    return found


def served_figures(took: Intervals) -> dict[str, float | None]:
    """tokens/s while all rows decode, and by the bare engine's."""
    found: dict[str, float | None] = {}
    for rows in SERVED_ROWS:
        through, alone = took["served", rows], took[BARE, rows]
        found[f"served_n{rows}_tokens_per_s"] = per_s(rows, median(through))
        found[f"served_bare_n{rows}_tokens_per_s"] = per_s(rows, median(alone))
        found[f"served_by_bare_n{rows}"] = ratio(alone, through)
    return found


def _plain(took: Intervals) -> dict[str, list[float]]:
    return {f"{name}_n{rows}": values for (name, rows), values in took.items()}
