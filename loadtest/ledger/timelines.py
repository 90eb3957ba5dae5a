"""Pictures along time: a slow turn as a waterfall, and one second of the devices."""

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from loadtest.ledger.device import Idle
from loadtest.ledger.explanation import Explanation
from loadtest.ledger.intervals import Interval, Intervals, intersection, total, union, within
from loadtest.ledger.palette import CAUSES, IDLE, TEXT, bare, stage_colour
from loadtest.ledger.phases import REMOTE
from loadtest.ledger.request import Account, Cause, account
from loadtest.ledger.run import NS_PER_MS, Turn

BETWEEN = "on its way"
SECOND_NS = 1_000_000_000
BAR = 0.7
FRAME = 0.86
DEVICE_ROW = 1.5


def waterfall_figure(told: Explanation, percentile: float = 95.0) -> Figure:
    """The turn at a percentile of latency: a row a stage, coloured by where the time went."""
    turn = told.requests.slow(percentile)
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    axes = figure.subplots()
    if turn is None:
        axes.set_title("No turn was answered")
        return figure
    rows = _rows(told, turn)
    told_account = account(turn, told.lanes)
    remote = _remote(turn)
    for number, (stage, intervals) in enumerate(rows):
        _colour_row(axes, number, intervals, told_account)
        _frame(axes, number, remote.get(stage, []), turn)
    _mark_chunks(axes, len(rows), turn)
    axes.set_yticks(range(len(rows) + 1), [*(name for name, _ in rows), "chunks arrive"])
    axes.invert_yaxis()
    axes.set_xlim(0, _ms(turn, turn.end_ns) * 1.005)
    axes.set_xlabel("ms since the turn was meant to be sent")
    axes.set_title(
        f"A slow turn (p{percentile:.0f} of latency): {_ms(turn, turn.end_ns):.0f} ms, "
        f"first audio after {_ms(turn, turn.sound[0][0]) if turn.sound else 0:.0f} ms"
    )
    bare(axes, keep_left=False)
    _legend_of_causes(axes, told_account, framed=bool(remote))
    return figure


def _remote(turn: Turn) -> dict[str, Intervals]:
    """Stage -> when another server had the turn there, from the proxy's call to its answers."""
    found: dict[str, list[Interval]] = {}
    for span in turn.spans:
        if span.what == REMOTE:
            found.setdefault(span.stage, []).append((span.start_ns, span.end_ns))
    return {stage: union(intervals) for stage, intervals in found.items()}


def _frame(axes: Axes, number: int, intervals: Intervals, turn: Turn) -> None:
    times = [(_ms(turn, start), (end - start) / NS_PER_MS) for start, end in intervals]
    place = (number - FRAME / 2, FRAME)
    if times:
        axes.broken_barh(times, place, facecolor="none", edgecolor=TEXT, linewidth=0.8)


def _rows(told: Explanation, turn: Turn) -> list[tuple[str, list[Interval]]]:
    """(stage, when the turn was there) in the order of the stages, ways between them first."""
    stages: dict[str, list[Interval]] = {}
    for phase in told.lanes.phases(turn):
        stages.setdefault(phase.stage, []).append(phase.interval)
    merged = {stage: union(intervals) for stage, intervals in stages.items()}
    there = union(interval for intervals in merged.values() for interval in intervals)
    ends = [turn.intended_ns, *(moment for interval in there for moment in interval), turn.end_ns]
    between = union(zip(ends[::2], ends[1::2], strict=True))
    return [(BETWEEN, between), *merged.items()]


def _colour_row(axes: Axes, number: int, intervals: Sequence[Interval], told: Account) -> None:
    start_ns = told.turn.intended_ns
    for cause in Cause:
        parts = intersection(told.parts[cause], intervals)
        _bars(axes, number, parts, start_ns, CAUSES[cause])


def _mark_chunks(axes: Axes, number: int, turn: Turn) -> None:
    times = [_ms(turn, at) for at, _ in turn.sound]
    axes.plot(times, [number] * len(times), "|", color=TEXT, markersize=11, markeredgewidth=1.6)


def _legend_of_causes(axes: Axes, told: Account, *, framed: bool) -> None:
    seen = [(cause, total(told.parts[cause]) / NS_PER_MS) for cause in Cause]
    handles = [
        Patch(color=CAUSES[cause], label=f"{cause}: {ms:.0f} ms") for cause, ms in seen if ms > 0.5
    ]
    if framed:
        handles.append(Patch(facecolor="none", edgecolor=TEXT, label="asked of another server"))
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.05))


def devices_figure(told: Explanation) -> Figure:
    """One second from the middle of the window: passes by stage, and below them why it is idle."""
    start_ns = max(told.run.window[0], sum(told.run.window) // 2 - SECOND_NS // 2)
    end_ns = min(told.run.window[1], start_ns + SECOND_NS)
    figure = Figure(figsize=(11, 1.5 + 1.15 * len(told.devices)), layout="constrained")
    axes = figure.subplots()
    seen: dict[str, str] = {}
    names: list[str] = []
    for number, book in enumerate(told.devices):
        row = DEVICE_ROW * number
        for one in told.lanes.by_device[book.device]:
            part = within([(one.start_ns, one.end_ns)], start_ns, end_ns)
            _bars(axes, row, part, start_ns, stage_colour(one.stage), edge=True)
            if part:
                seen[one.stage] = stage_colour(one.stage)
        for cause in Idle:
            parts = within(book.idle_parts[cause], start_ns, end_ns)
            _bars(axes, row + 0.6, parts, start_ns, IDLE[cause], height=0.3)
            if total(parts) > NS_PER_MS:
                seen[f"idle: {cause}"] = IDLE[cause]
        names.append(book.device)
    _finish_devices(axes, told, names, (end_ns - start_ns) / NS_PER_MS)
    handles = [Patch(color=colour, label=label) for label, colour in seen.items()]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.05))
    return figure


def _finish_devices(axes: Axes, told: Explanation, names: list[str], length_ms: float) -> None:
    rows = [DEVICE_ROW * number for number in range(len(names))]
    axes.set_yticks([*rows, *(row + 0.6 for row in rows)], [*names, *["idle because"] * len(rows)])
    axes.invert_yaxis()
    axes.set_xlim(0, length_ms)
    axes.set_xlabel("ms")
    axes.set_title(f"One second of the {told.run.device_words}, from the middle of the run")
    bare(axes, keep_left=False)


def _bars(
    axes: Axes,
    row: float,
    intervals: Iterable[Interval],
    start_ns: int,
    colour: str,
    *,
    height: float = BAR,
    edge: bool = False,
) -> None:
    spans = [((a - start_ns) / NS_PER_MS, (b - a) / NS_PER_MS) for a, b in intervals]
    line = {"edgecolor": "white", "linewidth": 0.4} if edge else {"linewidth": 0.0}
    if spans:
        axes.broken_barh(spans, (row - height / 2, height), facecolor=colour, **line)


def _ms(turn: Turn, at_ns: int) -> float:
    return (at_ns - turn.intended_ns) / NS_PER_MS
