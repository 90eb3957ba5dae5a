"""Pictures of live calls: the way to the first sound, barge-ins, ends of turns."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.ledger.palette import (
    BLUE,
    GREEN,
    GREY,
    MARKERS,
    ORANGE,
    PINK,
    SAND,
    TEXT,
    VERMILLION,
    bare,
    png,
    styled,
)
from loadtest.live.endpoints import NAMED_S
from loadtest.live.parts import SUM

Detail = Mapping[str, Any]
"""What an experiment tells beside its figures."""

PARTS: Final = {
    "endpoint": ("end of turn", SAND),
    "words": ("words", VERMILLION),
    "queue": ("queue", PINK),
    "stages": ("thinking and speaking", BLUE),
}


def draw(detail: Mapping[str, Detail], folder: Path) -> list[Path]:
    """Write `<experiment>.png` for every experiment that was run."""
    drawn = []
    with styled():
        for name in PICTURES.keys() & detail.keys():
            path = folder / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(PICTURES[name](detail[name])))
            drawn.append(path)
    return sorted(drawn)


def paced(found: Detail) -> Figure:
    """Emulated crowds."""
    return _crowds(found, "End of speech to first sound, emulated device")


def real(found: Detail) -> Figure:
    """Crowds on real weights."""
    return _crowds(found, "End of speech to first sound, real weights")


def _crowds(found: Detail, title: str) -> Figure:
    """Mean parts on each other, one bar a crowd; median and p95 of the whole are marked."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    heard = {people: each for people, each in found.items() if each["mean_parts_ms"]}
    left = np.zeros(len(heard))
    for part, (label, colour) in PARTS.items():
        widths = np.array([each["mean_parts_ms"][part] for each in heard.values()])
        axes.barh(range(len(heard)), widths, left=left, height=0.6, color=colour, label=label)
        left += widths
    for share, marker in (("p50", MARKERS[0]), ("p95", MARKERS[3])):
        values = [each[f"{SUM}_ms_{share}"] for each in heard.values()]
        axes.plot(values, range(len(heard)), marker, color=TEXT, markersize=6, label=share)
    axes.set_yticks(range(len(heard)), [_callers(people) for people in heard])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlabel("ms (bars: means, which add up)")
    axes.set_title(title)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=6)
    bare(axes)
    return figure


def _callers(people: str) -> str:
    return "1 caller" if people == "1" else f"{people} callers"


def barge_in(found: Detail) -> Figure:
    """How many of the barge-ins had been obeyed after so many ms."""
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    stopped, spoken = figure.subplots(1, 2)
    silence = found["silence_ms"]
    _grown(stopped, silence["alone"], "one caller", BLUE)
    _grown(stopped, silence["several"], "several callers", ORANGE)
    stopped.legend(loc="lower right")
    stopped.set_title("Stopped: until the last sound is over")
    _grown(spoken, found["speech_to_pause_ms"], "", GREEN)
    spoken.set_title("By speech: until the answer is held")
    for axes in (stopped, spoken):
        axes.set_xlim(left=0)
        axes.set_ylim(0, 100)
        axes.set_xlabel("ms")
        axes.set_ylabel("% of barge-ins")
        bare(axes)
    return figure


def _grown(axes: Axes, values: Sequence[float], label: str, colour: str) -> None:
    shares = 100 * np.arange(1, len(values) + 1) / max(1, len(values))
    axes.step([0, *sorted(values)], [0, *shares], where="post", color=colour, label=label)


def endpoints(found: Detail) -> Figure:
    """False ends over the delay behind the true ends: of every fixed time-out, and the product."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    fixed = found["fixed"]
    delays = [one["delay_ms_mean"] for one in fixed.values()]
    false = [one["false_ends"] for one in fixed.values()]
    axes.plot(delays, false, color=GREY, marker=MARKERS[0], markersize=3, label="fixed time-outs")
    for timeout_s, delay, count in zip(fixed, delays, false, strict=True):
        if float(timeout_s) in NAMED_S:
            axes.annotate(
                f"{1000 * float(timeout_s):.0f} ms",
                (delay, count),
                (6, 5),
                textcoords="offset points",
            )
    ours = found["adaptive"]
    axes.plot(
        ours["delay_ms_mean"],
        ours["false_ends"],
        MARKERS[3],
        color=VERMILLION,
        markersize=9,
        label="by what was said (ours)",
    )
    axes.set_xlim(0, 1.12 * max(*delays, ours["delay_ms_mean"]))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("ms from the end of speech to the end of the turn, mean")
    axes.set_ylabel(f"ends inside an order, of {found['pauses']} pauses")
    axes.set_title("When is a turn over?")
    axes.legend()
    bare(axes)
    return figure


PICTURES: Final[dict[str, Callable[[Detail], Figure]]] = {
    "barge_in": barge_in,
    "endpoints": endpoints,
    "paced": paced,
    "real": real,
}
