"""Pictures of single stages: the voice over flow steps, schedulers over a crowd, windows."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.ledger.palette import (
    BLUE,
    GREEN,
    GREY,
    MARKERS,
    ORANGE,
    PALE,
    SKY,
    VERMILLION,
    bare,
    png,
    styled,
)
from loadtest.stages.encoder import Policy
from loadtest.stages.flow import BURST, POISSON
from loadtest.stages.flow_pieces import ALONE, EQUAL, INTERLEAVE, KEYS, LOCK, MIXED, REQUESTS
from loadtest.stages.hearing_plots import encoders, hearing
from loadtest.stages.roofline_plot import roofline
from loadtest.stages.served_modes import REQUESTS as CROWDS
from loadtest.stages.window import MIXED_LOAD

Detail = Mapping[str, Any]
"""What an experiment tells beside its figures."""

SCHEDULERS = {
    LOCK: ("locked batches", BLUE, MARKERS[0]),
    INTERLEAVE: ("steps interleaved", VERMILLION, MARKERS[1]),
    ALONE: ("one piece at a time", GREY, MARKERS[2]),
}
LOADS = {
    (EQUAL, BURST): "equal pieces, all at once",
    (EQUAL, POISSON): "equal pieces, at random",
    (MIXED, BURST): "mixed pieces, all at once",
    (MIXED, POISSON): "mixed pieces, at random",
}
POLICIES = {
    Policy.NONE: ("no window", GREY),
    Policy.FIXED: ("fixed window", ORANGE),
    Policy.CONDITIONAL: ("conditional window (ours)", BLUE),
}
SCENARIOS = {
    "burst": "eight\nat once",
    "lone": "one\nat a time",
    "mixed": f"three lengths\n{MIXED_LOAD} % load",
}
"""Others are random arrivals, `poisson_<percent of load>`."""

BAR = 0.26
"""Width of a bar, of the room between two scenarios."""


def draw(detail: Mapping[str, Detail], folder: Path) -> list[Path]:
    """Write `<experiment>.png` for every experiment that was run and has a picture."""
    drawn = []
    with styled():
        for name in PICTURES.keys() & detail.keys():
            path = folder / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(PICTURES[name](detail[name])))
            drawn.append(path)
    return sorted(drawn)


def speaking(found: Detail) -> Figure:
    """Real-time factor, first audio and intelligibility over flow steps; first audio of crowds."""
    figure = Figure(figsize=(15, 3.9), layout="constrained")
    speed, first, words, crowd = figure.subplots(1, 4, width_ratios=(1, 1, 1, 0.8))
    steps = found["steps"]
    rounds = [found["rtf"][str(count)] for count in steps]
    _over_steps(speed, found, [median(values) for values in rounds], BLUE)
    _labelled(speed, "One caller: speed", "seconds of computing per second of sound")
    _over_steps(first, found, [median(found["first_audio_ms"][str(n)]) for n in steps], GREEN)
    _labelled(first, "One caller: first audio", "ms, median")
    _understood(words, found)
    _crowded(crowd, found)
    return figure


def _over_steps(axes: Axes, found: Detail, values: Sequence[float], colour: str) -> None:
    """A line with every value written at it; the shipped number of steps is marked."""
    steps = found["steps"]
    axes.plot(steps, values, color=colour, marker=MARKERS[0])
    for at, value in zip(steps, values, strict=True):
        text = f"{value:.3g}"
        axes.annotate(text, (at, value), (-3, 8), textcoords="offset points", ha="right")
    _steps_axis(axes, found)
    axes.set_ylim(0, max(values) * 1.15)


def _steps_axis(axes: Axes, found: Detail) -> None:
    steps, shipped = found["steps"], found["shipped"]
    axes.axvspan(shipped / 1.25, shipped * 1.25, color=PALE, zorder=0)
    axes.set_xscale("log", base=2)
    axes.set_xticks(steps, [str(count) for count in steps])
    axes.set_xlim(steps[0] / 1.8, steps[-1] * 1.3)
    axes.set_xlabel("flow steps (grey: as shipped)")


def _understood(axes: Axes, found: Detail) -> None:
    """Words misheard, and on a second scale the distance from the finest steps."""
    steps = found["steps"]
    errors = [100 * found["wer"][str(count)] for count in steps]
    axes.plot(steps, errors, color=VERMILLION, marker=MARKERS[1])
    axes.set_ylim(0, max(5.0, 1.3 * max(errors)))
    _steps_axis(axes, found)
    _labelled(axes, "Understood, and near to the finest", "% of words misheard")
    axes.yaxis.label.set_color(VERMILLION)
    other = axes.twinx()
    distances = [float(np.mean(found["distance_db"][str(count)])) for count in steps]
    other.plot(steps, distances, color=SKY, marker=MARKERS[2])
    yardstick = float(np.mean(found["other_seed_db"]))
    other.axhline(yardstick, color=SKY, linestyle="--", linewidth=1.2)
    other.annotate(
        "another seed", (steps[-1], yardstick), (0, 4), textcoords="offset points", ha="right"
    )
    other.set_ylim(0, yardstick * 1.3)
    other.set_ylabel(f"dB from {steps[-1]} steps", color=SKY)
    other.spines[["top"]].set_visible(False)


def _crowded(axes: Axes, found: Detail) -> None:
    """First audio of 1, 4, 8 callers at the shipped steps: every sentence, the median marked."""
    crowds = {"1": found["first_audio_ms"][str(found["shipped"])], **found["crowds_first_audio_ms"]}
    for at, values in enumerate(crowds.values()):
        aside = at + np.linspace(-0.22, 0.22, len(values))
        axes.plot(aside, sorted(values), ".", color=GREEN, alpha=0.5, markersize=5)
        axes.hlines(median(values), at - 0.35, at + 0.35, color=GREEN, linewidth=2)
    axes.set_xticks(range(len(crowds)), list(crowds))
    axes.set_xlabel("callers at once (line: median)")
    axes.set_ylim(bottom=0)
    _labelled(axes, "A crowd: first audio", "ms, every sentence")


def flow(found: Detail) -> Figure:
    """First chunk (p50 and p95) and pieces/s over 1 to 16 requests, a column a load."""
    figure = Figure(figsize=(13, 6), layout="constrained")
    grid = figure.subplots(2, len(LOADS), sharex=True, sharey="row")
    for ((keys, arrivals), load), (first, pace) in zip(LOADS.items(), grid.T, strict=True):
        for mode in SCHEDULERS:
            cells = [found["cells"][f"{mode}_{keys}_{arrivals}_n{n}"] for n in REQUESTS]
            _over_counts(first, pace, mode, REQUESTS, cells, "pieces_per_s")
        first.set_title(load)
        pace.set_xlabel("requests")
    _named(grid, "ms to first chunk (dotted: p95)", "pieces/s")
    return figure


def served_modes(found: Detail) -> Figure:
    """First audio (p50 and p95) and sentences/s through the server, a column a mix of keys."""
    figure = Figure(figsize=(8, 6), layout="constrained")
    grid = figure.subplots(2, len(KEYS), sharex=True, sharey="row")
    for keys, (first, pace) in zip(KEYS, grid.T, strict=True):
        for mode in SCHEDULERS:
            cells = [found["cells"][f"{mode}_{keys}_n{n}"] for n in CROWDS]
            _over_counts(first, pace, mode, CROWDS, cells, "sentences_per_s")
        first.set_title(f"{keys} sentences, all at once")
        pace.set_xlabel("callers")
    _named(grid, "ms to first audio (dotted: p95)", "sentences/s")
    return figure


def _over_counts(
    first: Axes,
    pace: Axes,
    mode: str,
    counts: Sequence[int],
    cells: Sequence[Mapping[str, float]],
    per_s: str,
) -> None:
    """One scheduler's times and pace over how many ask, a cell a count."""
    label, colour, marker = SCHEDULERS[mode]
    p50, p95, rate = ([cell[name] for cell in cells] for name in ("p50_ms", "p95_ms", per_s))
    first.plot(counts, p50, color=colour, marker=marker, label=label)
    first.plot(counts, p95, color=colour, marker=marker, linestyle=":", alpha=0.7)
    pace.plot(counts, rate, color=colour, marker=marker)
    for axes in (first, pace):
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, [str(count) for count in counts])
        bare(axes)


def _named(grid: Any, times: str, paces: str) -> None:
    """Rows of `grid` [2, columns] begin at 0 and say what they are."""
    for axes, words in zip(grid[:, 0], (times, paces), strict=True):
        axes.set_ylim(bottom=0)
        axes.set_ylabel(words)
    grid[0, 0].legend(loc="upper left")


def window(found: Detail) -> Figure:
    """Throughput and median latency of each policy, scenario by scenario."""
    scenarios = found["first_round"]
    figure = Figure(figsize=(13, 4), layout="constrained")
    panels = figure.subplots(1, 2)
    figures = (("per_s", "Throughput", "callers/s"), ("p50_ms", "Median latency", "virtual ms"))
    for axes, (name, title, unit) in zip(panels, figures, strict=True):
        for number, (policy, (label, colour)) in enumerate(POLICIES.items()):
            places = np.arange(len(scenarios)) + (number - 1) * BAR
            values = [each[str(policy)][name] for each in scenarios.values()]
            bars = axes.bar(places, values, BAR * 0.92, color=colour, label=label)
            axes.bar_label(bars, [f"{value:.0f}" for value in values], fontsize=8, padding=2)
        names = [_in_words(scenario) for scenario in scenarios]
        axes.set_xticks(range(len(scenarios)), names)
        axes.tick_params(axis="x", length=0)
        axes.margins(y=0.12)
        _labelled(axes, title, unit)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(POLICIES)
    )
    return figure


def _in_words(scenario: str) -> str:
    return SCENARIOS.get(scenario) or f"at random\n{scenario.removeprefix('poisson_')} % load"


def _labelled(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title)
    axes.set_ylabel(unit)
    bare(axes)


PICTURES: dict[str, Callable[[Detail], Figure]] = {
    "bound": roofline,
    "encoders": encoders,
    "flow": flow,
    "hearing": hearing,
    "served_modes": served_modes,
    "speaking": speaking,
    "window": window,
}
