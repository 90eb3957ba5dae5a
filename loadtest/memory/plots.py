"""One picture: the three curves in one memory over time, under each plan."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.ledger.palette import BLACK, TEXT, bare, stage_colour
from loadtest.memory.experiment import AVERAGE, BUDGETS, PEAK, Outcome
from loadtest.memory.world import LISTEN, SPEAK, THINK

GB: Final = 1e9
SECONDS: Final = 4.0
POINTS: Final = 2000
NAMES: Final = {SPEAK: "speech: a constant", THINK: "KV: every token", LISTEN: "encoder: a spike"}
"""In the order they are stacked, from below."""

TITLES: Final = {PEAK: "by peak", AVERAGE: "by average", BUDGETS: "by budgets"}


def curves(runs: Mapping[str, Outcome], curve_names: tuple[str, ...], device: int) -> Figure:
    """The last seconds of a run of each plan, a panel each; OOMs are marked above the memory."""
    figure = Figure(figsize=(14, 4.2), layout="constrained")
    panels = figure.subplots(1, len(runs), sharey=True)
    for axes, (name, outcome) in zip(panels, runs.items(), strict=True):
        _stacked(axes, outcome, curve_names)
        axes.axhline(device / GB, color=TEXT, linewidth=1.2)
        axes.set_title(f"{TITLES[name]}: {outcome.wasted_share:.0%} wasted")
        axes.set_xlabel("virtual s")
        bare(axes)
    panels[0].set_ylabel("GB (line: the device's)")
    panels[0].set_ylim(0, 1.08 * device / GB)
    handles, labels = panels[0].get_legend_handles_labels()
    handles.append(panels[0].plot([], [], "v", color=BLACK)[0])
    figure.legend(handles, [*labels, "OOM"], loc="outside upper center", ncols=len(handles))
    for axes, outcome in zip(panels, runs.values(), strict=True):
        begin = outcome.samples[-1][0] - SECONDS
        times = [when - begin for when in outcome.oom_times_s if when >= begin]
        axes.plot(times, [1.03 * device / GB] * len(times), "v", color=BLACK, markersize=4)
    return figure


def _stacked(axes: Axes, outcome: Outcome, curve_names: tuple[str, ...]) -> None:
    times = np.array([when for when, _ in outcome.samples])
    used = np.array([each for _, each in outcome.samples]).T / GB
    grid = np.linspace(times[-1] - SECONDS, times[-1], POINTS)
    at = np.maximum(0, np.searchsorted(times, grid, side="right") - 1)
    rows = [used[curve_names.index(name)][at] for name in NAMES]
    colours = [stage_colour(name) for name in NAMES]
    axes.stackplot(grid - grid[0], rows, colors=colours, labels=list(NAMES.values()), linewidth=0)
    axes.set_xlim(0, SECONDS)
