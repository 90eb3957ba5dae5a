"""Two pictures: tokens/s over rows, and the gaps of streams beside a prompt."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from loadtest.engine.steps import CT2, LLAMA, OURS, ROWS
from loadtest.ledger.palette import BLUE, GREEN, MARKERS, ORANGE, VERMILLION, bare, png, styled

LOOKS = {
    OURS: ("this engine, int8", BLUE, MARKERS[0]),
    LLAMA: ("llama.cpp, Q8_0", VERMILLION, MARKERS[1]),
    CT2: ("CTranslate2, int8", GREEN, MARKERS[2]),
}
GAP_COLOURS = (BLUE, ORANGE)
BINS = 60


def draw(detail: Mapping[str, Mapping[str, Any]], folder: Path) -> list[Path]:
    """Write the pictures of the experiments that were run."""
    drawn = []
    with styled():
        if "steps" in detail:
            figure = speed(detail["steps"]["tokens_per_s"])
            drawn.append(_written(figure, folder / "tokens_per_s.png"))
        if "beside" in detail:
            drawn.append(_written(gaps(detail["beside"]["gaps_ms"]), folder / "gaps.png"))
    return drawn


def speed(curves: Mapping[str, Mapping[str, list[float]]]) -> Figure:
    """Context -> contestant -> tokens/s over ROWS, a panel a context."""
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for axes, (context, contestants) in zip(panels, curves.items(), strict=True):
        for name, values in contestants.items():
            label, colour, marker = LOOKS[name]
            axes.plot(ROWS, values, color=colour, marker=marker, label=label)
        axes.set_xscale("log", base=2)
        axes.set_xticks(ROWS, [str(rows) for rows in ROWS])
        axes.set_ylim(bottom=0)
        axes.set_title(f"{context} tokens of context")
        axes.set_xlabel("sequences in a decode step")
        bare(axes)
    panels[0].set_ylabel("tokens/s, one thread")
    panels[0].legend(loc="upper left")
    return figure


def gaps(found: Mapping[str, Mapping[str, list[float]]]) -> Figure:
    """Tokens of a chunk -> what -> ms from token to token of a stream, a panel a size."""
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    panels = figure.subplots(1, len(found), sharex=True, sharey=True, squeeze=False)[0]
    longest = max(max(values) for each in found.values() for values in each.values())
    bins = np.linspace(0, longest * 1.05, BINS).tolist()
    for axes, (chunk, each) in zip(panels, found.items(), strict=True):
        for (name, values), colour in zip(each.items(), GAP_COLOURS, strict=True):
            weights = np.full(len(values), 100.0 / len(values))
            axes.hist(values, bins, weights=weights, color=colour, alpha=0.6, label=name)
            axes.axvline(float(np.median(values)), color=colour, linestyle="--", linewidth=1.2)
        axes.set_title(f"From token to token of 7 streams, chunks of {chunk}")
        axes.set_xlabel("ms (dashed: median)")
        bare(axes)
    panels[0].set_ylabel("% of the gaps")
    panels[0].legend()
    return figure


def _written(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(figure))
    return path
