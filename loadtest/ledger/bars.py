"""Stacked bars: what the devices' time and the turns' time consist of."""

from collections.abc import Iterable, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from loadtest.ledger.device import DeviceBook, Idle
from loadtest.ledger.explanation import Explanation
from loadtest.ledger.palette import CAUSES, IDLE, bare, ink_on, stage_colour
from loadtest.ledger.request import Cause

Segment = tuple[str, float, str]
"""Label, length, colour."""


def books_figure(told: Explanation) -> Figure:
    """Above, each device's time, busy and idle; below, a turn's time."""
    devices = told.devices
    figure = Figure(figsize=(11, 4.4 + 0.5 * len(devices)), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=[max(1, len(devices)), 2])
    _stacked(above, [(book.device, device_segments(book)) for book in devices])
    above.set_title(f"What the {told.run.device_words} did: busy by stage, idle by cause")
    above.set_xlabel("% of the measured time")
    above.set_xlim(0, 100)
    turns = [("whole turn", _turn_segments(told.requests.mean_ms()))]
    turns.append(("to first audio", _turn_segments(told.requests.mean_ms(first_audio=True))))
    _stacked(below, turns)
    below.set_title("What a turn's time went to (mean of the successful turns)")
    below.set_xlabel("ms")
    return figure


def device_segments(book: DeviceBook) -> list[Segment]:
    """Busy stages, then idle causes, in % of the window."""
    wall_ns = max(1, book.wall_ns)
    busy = [(f"busy: {s}", 100 * ns / wall_ns, stage_colour(s)) for s, ns in book.busy.items()]
    return busy + idle_segments(book.idle_shares())


def idle_segments(shares: Mapping[Idle, float]) -> list[Segment]:
    """Idle causes in % of the window."""
    return [(f"idle: {cause}", 100 * shares[cause], IDLE[cause]) for cause in Idle]


def _turn_segments(means: Mapping[Cause, float]) -> list[Segment]:
    return [(cause.value, means[cause], CAUSES[cause]) for cause in Cause]


def _stacked(axes: Axes, bars: Iterable[tuple[str, list[Segment]]]) -> None:
    """Horizontal bars, the first on top, with a legend of what can be seen."""
    bars = list(bars)
    longest = max((sum(length for _, length, _ in segments) for _, segments in bars), default=1)
    seen: dict[str, str] = {}
    for row, (_, segments) in enumerate(bars):
        left = 0.0
        for label, length, colour in segments:
            axes.barh(row, length, 0.62, left, color=colour, edgecolor="white", linewidth=0.8)
            if length > 0.045 * longest:
                _write(axes, left + length / 2, row, f"{length:.0f}", ink_on(colour))
            if length > 0.002 * longest:
                seen[label] = colour
            left += length
    axes.set_yticks(range(len(bars)), [name for name, _ in bars])
    axes.invert_yaxis()
    bare(axes, keep_left=False)
    handles = [Patch(color=colour, label=label) for label, colour in seen.items()]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.05))


def _write(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    axes.text(x, y, text, color=colour, ha="center", va="center", fontsize=9)
