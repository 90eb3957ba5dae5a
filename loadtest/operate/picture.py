"""The dashboard as a picture, laid out as Grafana would: `python -m loadtest.operate.picture`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from deploy.observe import dashboard
from loadtest.operate.record import TARGET as RECORDED

TARGET: Final = dashboard.TARGET.with_suffix(".png")
COLUMN_IN, UNIT_IN = 0.62, 0.29
"""Inches of one column and one row of Grafana's grid."""

GAP_IN: Final = 0.07
HEAD_IN: Final = 0.55
DPI: Final = 90
PAGE, CARD, EDGE, INK, FAINT = "#111217", "#181b1f", "#2c3036", "#d5d8de", "#8e9299"
GOOD, BAD = "#73bf69", "#f2495c"
COLOURS: Final = (
    "#73bf69",
    "#5794f2",
    "#f2cc0c",
    "#ff9830",
    "#b877d9",
    "#8ab8ff",
    "#fade2a",
    "#ff7383",
    "#56d9c0",
)
LETTERS: Final = {"font.family": "DejaVu Sans", "font.size": 7.5}
Series = list[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]
"""Legend, times in s since the start, values."""


def draw(told: Mapping[str, Any], recorded: Mapping[str, Any], path: Path) -> None:
    """Every panel of a dashboard at its place, with its recorded data."""
    panels = told["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    width, height = dashboard.WIDTH * COLUMN_IN, rows * UNIT_IN + HEAD_IN
    with mpl.rc_context(LETTERS):
        figure = Figure(figsize=(width, height), facecolor=PAGE)
        figure.text(
            0.008,
            1 - 0.3 / height,
            told["title"],
            color=INK,
            fontsize=14,
            weight="bold",
            va="center",
        )
        figure.text(
            0.075, 1 - 0.31 / height, told["description"], color=FAINT, fontsize=8, va="center"
        )
        for panel in panels:
            place = panel["gridPos"]
            top = 1 - (HEAD_IN + place["y"] * UNIT_IN) / height
            box = (
                (place["x"] * COLUMN_IN + GAP_IN) / width,
                top - (place["h"] * UNIT_IN - GAP_IN) / height,
                (place["w"] * COLUMN_IN - 2 * GAP_IN) / width,
                (place["h"] * UNIT_IN - GAP_IN) / height,
            )
            if panel["type"] == "row":
                figure.text(
                    box[0],
                    box[1] + box[3] * 0.4,
                    f"▾  {panel['title']}",
                    color=INK,
                    fontsize=9.5,
                    weight="bold",
                    va="center",
                )
            else:
                _draw(figure, box, panel, series(panel, recorded), recorded)
        figure.savefig(path, dpi=DPI, facecolor=PAGE)


def series(panel: Mapping[str, Any], recorded: Mapping[str, Any]) -> Series:
    """What there is to draw of a panel, in the order of its queries."""
    found: Series = []
    for target in panel["targets"]:
        for one in recorded["answers"][target["expr"]]:
            legend = target["legendFormat"]
            for label, value in one["metric"].items():
                legend = legend.replace(f"{{{{{label}}}}}", value)
            at, values = np.array(one["values"], float).T
            found.append((legend.replace("emu_", ""), at - recorded["start_s"], values))
    return found


def shown(value: float, unit: str) -> str:
    """A value in Grafana's `unit`."""
    if not np.isfinite(value):
        return "-"
    if unit == "percentunit":
        return f"{100 * value:.3g} %" if abs(value) < 10 else f"{100 * value:.0f} %"
    if unit == "s":
        return f"{value:.3g} s" if abs(value) >= 1 or not value else f"{1000 * value:.3g} ms"
    if unit == "ops":
        return f"{value:.3g}/s"
    return f"{value:.3g}"


def _draw(
    figure: Figure,
    box: tuple[float, float, float, float],
    panel: Mapping[str, Any],
    lines: Series,
    recorded: Mapping[str, Any],
) -> None:
    card = figure.add_axes(box, facecolor=CARD, xticks=[], yticks=[])
    for spine in card.spines.values():
        spine.set_color(EDGE)
    _, height_in = (
        size * side for size, side in zip(figure.get_size_inches(), box[2:], strict=True)
    )
    card.text(
        0.015 if box[2] > 0.25 else 0.04,
        1 - 0.13 / height_in,
        panel["title"],
        color=INK,
        fontsize=8.5,
        weight="semibold",
        va="center",
        transform=card.transAxes,
    )
    if panel["type"] == "stat":
        _stat(card, panel, lines)
        return
    x, y, w, h = box
    foot, head = 0.42 / height_in, 0.34 / height_in
    axes = figure.add_axes(
        (
            x + 0.88 * COLUMN_IN / figure.get_figwidth(),
            y + foot * h,
            w - 1.1 * COLUMN_IN / figure.get_figwidth(),
            h * (1 - foot - head),
        ),
        facecolor=CARD,
    )
    _curves(axes, panel, lines, recorded)


def _stat(card: Axes, panel: Mapping[str, Any], lines: Series) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    if not lines:
        card.text(0.5, 0.45, "no data", color=FAINT, ha="center", transform=card.transAxes)
        return
    _, at, values = lines[0]
    steps = defaults["thresholds"]["steps"]
    reached = [one for one in steps if one["value"] is None or values[-1] >= one["value"]]
    colour = GOOD if reached[-1]["color"] == "green" else BAD
    card.text(
        0.5,
        0.54,
        shown(values[-1], defaults["unit"]),
        color=colour,
        fontsize=19,
        weight="bold",
        ha="center",
        va="center",
        transform=card.transAxes,
    )
    low, high = min(0.0, float(values.min())), max(float(values.max()), 1e-9)
    spark = card.inset_axes((0, 0, 1, 0.26))
    spark.fill_between(at, low, values, color=colour, alpha=0.18, lw=0)
    spark.plot(at, values, color=colour, lw=1)
    spark.set(xlim=(at[0], max(at[-1], at[0] + 1)), ylim=(low, low + 1.1 * (high - low)))
    spark.axis("off")


def _curves(
    axes: Axes, panel: Mapping[str, Any], lines: Series, recorded: Mapping[str, Any]
) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    unit, custom = defaults["unit"], defaults["custom"]
    fixed = {
        one["matcher"]["options"]: one["properties"][0]["value"]["fixedColor"]
        for one in panel["fieldConfig"]["overrides"]
    }
    colours = [
        fixed.get(name, COLOURS[number % len(COLOURS)]) for number, (name, _, _) in enumerate(lines)
    ]
    if custom["stacking"]["mode"] == "normal" and lines:
        grid = np.unique(np.concatenate([at for _, at, _ in lines]))
        stack = [np.interp(grid, at, values, left=0, right=0) for _, at, values in lines]
        axes.stackplot(
            grid, stack, colors=colours, alpha=0.45, labels=[name for name, _, _ in lines], lw=0
        )
        for edge, colour in zip(np.cumsum(stack, axis=0), colours, strict=True):
            axes.plot(grid, edge, color=colour, lw=1.2)
    else:
        for (name, at, values), colour in zip(lines, colours, strict=True):
            axes.plot(at, values, color=colour, lw=1.4, label=name)
            axes.fill_between(at, 0, values, color=colour, alpha=0.07, lw=0)
    limit = defaults["thresholds"]["steps"][-1]["value"]
    top = max(1.12 * axes.get_ylim()[1], 1e-6)
    if limit is not None:
        top = max(top, 1.15 * limit)
        axes.axhline(limit, color=BAD, lw=1, ls=(0, (5, 3)))
    axes.set(
        xlim=(0, recorded["end_s"] - recorded["start_s"]),
        ylim=(0, 1.02 if defaults.get("max") == 1 else top),
    )
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, unit)))
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{int(value) // 60}:{int(value) % 60:02d}")
    )
    axes.tick_params(colors=FAINT, length=0, labelsize=7)
    axes.grid(color=EDGE, lw=0.6)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)
    inches = axes.get_window_extent().height / DPI
    if lines:
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(-0.02, -0.2 / inches),
            ncols=6,
            frameon=False,
            labelcolor=FAINT,
            fontsize=7,
            handlelength=1.2,
            columnspacing=1.2,
            borderaxespad=0,
        )
    else:
        axes.text(
            0.5,
            0.5,
            "nothing to show",
            color=FAINT,
            ha="center",
            va="center",
            transform=axes.transAxes,
        )


def main(paths: Sequence[Path] = (TARGET,)) -> None:
    """Write the picture of what is recorded."""
    for path in paths:
        draw(dashboard.dashboard(), json.loads(RECORDED.read_text()), path)


if __name__ == "__main__":
    main()
