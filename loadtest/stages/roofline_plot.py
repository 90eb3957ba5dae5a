"""The roofline of one thread: every graph under the roofs of this machine."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.ledger.palette import BLUE, GREY, ORANGE, TEXT, VERMILLION, bare, ink_on
from loadtest.stages.onnx_cost import BLOCKS, FLOAT, INT8
from loadtest.stages.roofline import GIGA, THRESHOLD, Bound

COLOURS: Mapping[str, str] = {
    Bound.COMPUTE: VERMILLION,
    Bound.MEMORY: BLUE,
    Bound.OVERHEAD: ORANGE,
}
MARKERS: Mapping[str, str] = {FLOAT: "o", INT8: "D", BLOCKS: "s"}
SLOPE_DEGREES = 58
"""Of the sloped roofs, about, at this size."""

HEIGHT = 0.6
"""Of the highest roof: where a sloped one is named, above all points."""

LINE = 0.05
"""From a name to the next, of the height."""

LABELS_AT = 1.02
"""Of the width: names stand in a column beside the axes, with the numbers that points bear."""


def roofline(detail: Mapping[str, Any]) -> Figure:
    """`detail` of the experiment `bound`."""
    graphs, ceilings = detail["graphs"], detail["ceilings"]
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    axes = figure.subplots()
    intensities = [one["flop_per_byte"] for one in graphs.values()]
    reach = (min(intensities) / 3, max(intensities) * 3)
    rates = [one["per_s"] / GIGA for one in graphs.values()]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*reach)
    axes.set_ylim(min(rates) / 2, 2 * max(ceilings["operations"].values()) / GIGA)
    _roofs(axes, ceilings, reach)
    ranked = sorted(graphs.items(), key=lambda item: -item[1]["per_s"])
    for number, (name, one) in enumerate(ranked, 1):
        _point(axes, number, one)
        best = max(one["share_of_compute"], one["share_of_memory"])
        words = f"{number:2d}  {name}: {one['bound']}, {best:.0%}"
        place = LABELS_AT, 1 - LINE * number
        axes.text(*place, words, transform=axes.transAxes, fontsize=8.5, color=TEXT)
    axes.set_xlabel("operations a byte that must move")
    axes.set_ylabel("10⁹ operations/s, one thread")
    axes.set_title("What each graph achieves of what one core can do")
    _legend(axes)
    bare(axes)
    return figure


def _roofs(axes: Axes, ceilings: Mapping[str, Any], reach: tuple[float, float]) -> None:
    """Sloped: what can be read; level: what can be multiplied."""
    x = np.geomspace(*reach, 400)
    top = max(ceilings["operations"].values())
    for name, style in (("memory", "-"), ("cache", "--")):
        rate = ceilings[name]
        axes.plot(x, np.minimum(x * rate, top) / GIGA, style, color=GREY, linewidth=1.4)
        axes.annotate(
            f"{name} {rate / GIGA:.0f} GB/s",
            (HEIGHT * top / rate, HEIGHT * top / GIGA),
            xytext=(-6, 6),
            textcoords="offset points",
            color=TEXT,
            fontsize=8,
            rotation=SLOPE_DEGREES,
            ha="center",
            va="center",
        )
    for kind, peak in ceilings["operations"].items():
        ridge = peak / ceilings["cache"]
        axes.plot([ridge, reach[1]], [peak / GIGA] * 2, "-", color=GREY, linewidth=1.4)
        words = f"{kind} {peak / GIGA:.0f}"
        place = reach[1] * 0.9, peak / GIGA * 1.06
        axes.text(*place, words, color=TEXT, fontsize=8, ha="right")


def _point(axes: Axes, number: int, one: Mapping[str, Any]) -> None:
    place = one["flop_per_byte"], one["per_s"] / GIGA
    colour, marker = COLOURS[one["bound"]], MARKERS[one["kind"]]
    axes.plot(*place, marker, color=colour, markersize=13, markeredgecolor="white", zorder=3)
    ink: dict[str, Any] = {"color": ink_on(colour), "fontsize": 7, "ha": "center", "va": "center"}
    axes.text(*place, str(number), zorder=4, **ink)


def _legend(axes: Axes) -> None:
    for bound, colour in COLOURS.items():
        axes.plot([], [], "o", color=colour, label=f"bound by {bound}")
    for kind, marker in MARKERS.items():
        axes.plot([], [], marker, color=GREY, label=f"most of it {kind}")
    words = f"overhead: below {THRESHOLD:.0%} of either roof"
    axes.legend(loc="lower right", title=words, title_fontsize=9)
