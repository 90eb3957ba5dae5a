"""Curves and distributions: gaps of one run; many runs against the number of people."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from loadtest.ledger.device import Idle
from loadtest.ledger.explanation import Explanation
from loadtest.ledger.palette import IDLE, MARKERS, SERIES, bare, stage_colour
from loadtest.rulers import chunk_gaps_ms, step_gaps_ms

Floats = NDArray[np.float64]
Values = Callable[[Explanation], float | None]
BINS = 70
BUSY = "#BFD9EA"
CHUNKS = "#333333"


def gaps_figure(told: Explanation) -> Figure:
    """How long running streams wait from step to step, and listeners from chunk to chunk."""
    steps: dict[str, list[Floats]] = {}
    for turn in told.run.answered:
        for stage, gaps in step_gaps_ms(turn, told.lanes):
            steps.setdefault(stage, []).append(gaps)
    chunks = np.array([gap for turn in told.run.answered for gap in chunk_gaps_ms(turn)])
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for stage, found in steps.items():
        _histogram(left, np.concatenate(found), stage, stage_colour(stage))
    _finish(left, "From step to step of a stage, for those running in it")
    _histogram(right, chunks, "chunks with sound", CHUNKS)
    _finish(right, "From chunk to chunk, as they arrive")
    return figure


def _histogram(axes: Axes, values: Floats, name: str, colour: str) -> None:
    """Share of the values in bins of equal ratio; a dashed line at p99."""
    values = values[values > 0]
    if not values.size:
        return
    low, high = float(values.min()) * 0.9, float(values.max()) * 1.15
    bins = np.geomspace(low, high, BINS).tolist()
    weights = np.full(values.size, 100.0 / values.size)
    p99 = float(np.percentile(values, 99))
    label = f"{name}: p99 {p99:.0f} ms, longest {values.max():.0f} ms"
    axes.hist(values, bins, weights=weights, color=colour, alpha=0.6, label=label)
    axes.axvline(p99, color=colour, linestyle="--", linewidth=1.2)


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title)
    axes.set_xlabel("ms (dashed: p99)")
    axes.set_ylabel("% of the gaps")
    if axes.has_data():
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(*_decent(*axes.get_xlim()))
        axes.xaxis.set_major_locator(FixedLocator(_ticks(*axes.get_xlim())))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylim(0.02, 100)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
    bare(axes)


def _decent(low: float, high: float) -> tuple[float, float]:
    return min(low, high / 20), high


def _ticks(low: float, high: float) -> list[float]:
    ladder = [factor * 10.0**power for power in range(-2, 6) for factor in (1, 2, 5)]
    return [tick for tick in ladder if low <= tick <= high]


def people_figure(told: Sequence[Explanation]) -> Figure:
    """Throughput, first audio and latency against people, one line a series."""
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    panels: list[tuple[str, str, Values]] = [
        ("Throughput", "answered turns/s", lambda one: one.rulers.turns_per_s),
        ("First audio, p95", "s from sending", lambda one: _s(one.rulers.first_audio.p95)),
        ("Whole turn, p50", "s from sending", lambda one: _s(one.rulers.latency.p50)),
    ]
    for axes, (title, unit, value) in zip(figure.subplots(1, 3), panels, strict=True):
        for number, (name, runs) in enumerate(_series(told).items()):
            _line(axes, name, runs, value, number)
        _people_axis(axes, told)
        axes.set_title(title)
        axes.set_ylabel(unit)
        axes.set_ylim(bottom=0)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def idle_figure(told: Sequence[Explanation]) -> Figure:
    """The busiest device's time of every run, idle stacked by cause; series side by side."""
    series = _series(told)
    counts = sorted({one.run.people for one in told})
    figure = Figure(figsize=(max(7.0, 2.2 + 0.75 * len(told)), 4.6), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(series)
    for number, (name, runs) in enumerate(series.items()):
        for one in runs:
            x = counts.index(one.run.people) - 0.4 + (number + 0.5) * width
            _bar(axes, x, 0.92 * width, one)
            axes.text(x, -2, name, rotation=90, ha="center", va="top", fontsize=8)
    axes.set_xticks(range(len(counts)), [f"{n} {'person' if n == 1 else 'people'}" for n in counts])
    axes.tick_params(axis="x", length=0, pad=12 + 5.2 * max(map(len, series)))
    axes.set_ylim(0, 100)
    axes.set_ylabel("% of the measured time")
    words = told[0].run.device_words
    axes.set_title(f"The busiest {words}: busy, and idle by cause")
    shares = [one.devices[0].idle_shares() for one in told if one.devices]
    used = [cause for cause in Idle if any(each[cause] > 0.002 for each in shares)]
    handles = [Patch(color=IDLE[cause], label=f"idle: {cause}") for cause in reversed(used)]
    handles.append(Patch(color=BUSY, label="busy"))
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    bare(axes)
    return figure


def _bar(axes: Axes, x: float, width: float, told: Explanation) -> None:
    if not told.devices:
        return
    book = told.devices[0]
    bottom = 100 * book.busy_share
    axes.bar(x, bottom, width, color=BUSY)
    axes.text(x, bottom / 2, f"{bottom:.0f}", ha="center", va="center", fontsize=9)
    for cause, share in book.idle_shares().items():
        axes.bar(x, 100 * share, width, bottom, color=IDLE[cause])
        bottom += 100 * share


def _line(axes: Axes, name: str, runs: Iterable[Explanation], value: Values, number: int) -> None:
    points = [(one.run.people, found) for one in runs if (found := value(one)) is not None]
    style = number % len(SERIES)
    axes.plot(
        [people for people, _ in points],
        [found for _, found in points],
        color=SERIES[style],
        marker=MARKERS[style],
        linewidth=1.8,
        label=name,
    )


def _people_axis(axes: Axes, told: Sequence[Explanation]) -> None:
    counts = sorted({one.run.people for one in told})
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("people at once")
    axes.grid(axis="y", color="#E5E5E5")
    axes.set_axisbelow(True)
    bare(axes)


def _series(told: Sequence[Explanation]) -> dict[str, list[Explanation]]:
    """Series -> its runs by people."""
    found: dict[str, list[Explanation]] = {}
    for one in sorted(told, key=lambda one: one.run.people):
        found.setdefault(one.run.series, []).append(one)
    return dict(sorted(found.items()))


def _s(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000
