"""What is made of measured numbers: medians, ratios, counts of a trace. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median
from typing import Any, TypeVar

T = TypeVar("T")
NS_PER_MS = 1e6


@dataclass(frozen=True)
class Found:
    """What an experiment has found; a figure that could not be measured is None."""

    figures: dict[str, float | None]
    detail: dict[str, Any] = field(default_factory=dict)
    """Of plots and readers: no figure that is judged."""

    missing: dict[str, str] = field(default_factory=dict)
    """What could not be measured, and why."""


@dataclass(frozen=True)
class Ordered:
    """One command of a trace: what was ordered, and how long after the one before it landed."""

    chunks: int
    """Of prompts, whole ones included. A command runs them before its decode step."""

    rows: int
    """Of its decode step; 0 is none."""

    gap_ms: float
    is_first_token: bool = False
    """It ran the last chunk of a prompt."""


def rotated(members: Sequence[T], number: int) -> list[T]:
    """The order of round `number`: nobody always goes first."""
    first = number % len(members) if members else 0
    return [*members[first:], *members[:first]]


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Median of the ratios of each round: what slows a whole round down does not count."""
    return median(a / b for a, b in zip(above, below, strict=True))


def per_s(rows: int, step_ms: float) -> float:
    """Tokens/s of steps of so many rows."""
    return rows * 1e3 / step_ms


def chunks_between_steps(trace: Iterable[Ordered]) -> int:
    """The most chunks that were run between a decode step and the next."""
    most = since = 0
    stepped = False
    for one in trace:
        since += one.chunks
        if one.rows:
            most = max(most, since) if stepped else most
            stepped, since = True, 0
    return most


def commands_to_first_token(trace: Sequence[Ordered]) -> int:
    """Commands from the beginning of `trace` to a prompt's first token, that one included.

    ValueError when none was drawn.
    """
    for number, one in enumerate(trace, 1):
        if one.is_first_token:
            return number
    raise ValueError("no prompt was prefilled to its end")


def step_intervals_ms(steps: Iterable[tuple[int, int]], rows: int) -> list[float]:
    """Between two (ns, tokens drawn) in a row that both drew `rows` tokens, ms.

    The second of them is a step of `rows` rows and nothing else: a prompt in it would have drawn
    one more token, or come with one row less.
    """
    return [
        (later[0] - earlier[0]) / NS_PER_MS
        for earlier, later in pairwise(steps)
        if earlier[1] == later[1] == rows
    ]


def mean_interval_ms(steps: Sequence[tuple[int, int]], rows: int, at_least: int) -> float:
    """Mean of these; ValueError where fewer than `at_least` were seen: they prove nothing."""
    found = step_intervals_ms(steps, rows)
    if len(found) < at_least:
        raise ValueError(f"{len(found)} steps of {rows} rows were seen; {at_least} were expected")
    return fmean(found)


def mean_context(prompt: int, rows: int, steps: int) -> int:
    """Tokens in a row, on average, over `steps` steps of `rows` rows of which one joined a step."""
    return round(prompt + (rows - 1) / 2 + steps / 2)


def gap(interval_ms: float, bare_ms: float) -> dict[str, float]:
    """What a step takes beyond computing: never more than the interval, less than 0 by noise."""
    return {"gap_ms": interval_ms - bare_ms, "gap_share": 1 - bare_ms / interval_ms}
