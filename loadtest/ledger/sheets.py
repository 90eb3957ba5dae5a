"""The tables of an explanation, once for the terminal and for the page."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

from loadtest.ledger.device import DeviceBook, Idle
from loadtest.ledger.explanation import Explanation, seed_rows
from loadtest.ledger.request import Cause
from loadtest.rulers import Spread

Row = tuple[str, ...]
_WHY = {
    Cause.ENCODER: "an encoder pass cannot be interrupted: everybody who decodes stands still",
    Cause.HOST_GAP: "the host prepares the next step, and the device could have had it already",
    Cause.ADMISSION: "the running limit is reached, or the step under way has to end",
}


@dataclass(frozen=True)
class Sheet:
    """A table; the first column is left-aligned text, the others are figures."""

    title: str
    columns: Row
    rows: tuple[Row, ...]
    note: str = ""
    text_columns: tuple[int, ...] = (0,)


def headline(told: Explanation) -> str:
    """What was run, in one line, with what it was not."""
    run = told.run
    kind = f"open loop at {run.facts.get('rate')} turns/s" if run.is_open_loop else "closed loop"
    people = f"{run.people} {'person' if run.people == 1 else 'people'}"
    return f"{run.name}: {run.series}, {people}, {kind}, {run.wall_ns * 1e-9:.0f} s measured"


def warnings(told: Explanation) -> list[str]:
    """What has to be known before any figure is believed."""
    run = told.run
    found = []
    if run.emulated:
        found.append("emulated device: it takes the profile's time and computes nothing")
    if run.invalid:
        found.append(f"INVALID RUN: {run.invalid}")
    return found


def sheets(told: Explanation) -> Iterator[Sheet]:
    """All tables, the most asked for first."""
    yield seed_sheet(told)
    yield request_sheet(told)
    for book in told.devices:
        yield device_sheet(book, told.run.device_words)
    yield speed_sheet(told)
    yield smoothness_sheet(told)
    yield count_sheet(told)
    yield from what_if_sheets(told)


def what_if_sheets(told: Explanation) -> Iterator[Sheet]:
    """Which stage to place or scale otherwise, and what that would give; where it is foretold."""
    forecasts = import_module("loadtest.sim.forecast")  # which reads explanations itself
    found = forecasts.what_if(told)
    if found:
        columns = ("change", "turns/s", "times as many", "first audio p95, ms")
        rows = [
            (words, *map(_plain, (one.turns_per_s, one.turns_gain, one.first_audio_p95_ms)))
            for words, one in found.items()
        ]
        note = "foretold by the simulator, with the costs that this run recorded"
        yield Sheet("What if", columns, tuple(rows), note)


def seed_sheet(told: Explanation) -> Sheet:
    """The seed's three rows."""
    rows = [
        (cause.value, f"{ms:.0f}", _percent(share), _WHY[cause])
        for cause, ms, share in seed_rows(told.requests)
    ]
    return Sheet(
        "Where a turn waits (the seed's table, from the request book)",
        ("cause", "ms a turn", "of a turn", "why"),
        tuple(rows),
        text_columns=(0, 3),
    )


def request_sheet(told: Explanation) -> Sheet:
    """The request book: mean of the successful turns."""
    means, shares = told.requests.mean_ms(), told.requests.shares()
    first = told.requests.mean_ms(first_audio=True)
    rows = [
        (cause.value, f"{means[cause]:.1f}", _percent(shares[cause]), f"{first[cause]:.1f}")
        for cause in Cause
        if means[cause] or cause is Cause.UNEXPLAINED
    ]
    rows.append(("sum", f"{sum(means.values()):.1f}", "100 %", f"{sum(first.values()):.1f}"))
    p50, p95 = (_percent(told.requests.unexplained(q), 2) for q in (50, 95))
    return Sheet(
        "Request book: a turn's time, mean of the successful ones",
        ("cause", "ms a turn", "of a turn", "ms to first audio"),
        tuple(rows),
        f"unexplained part of a turn: p50 {p50}, p95 {p95}",
    )


def device_sheet(book: DeviceBook, device_words: str) -> Sheet:
    """The device book of one device."""
    rows = [("busy: " + stage, *_seconds(ns, book.wall_ns)) for stage, ns in book.busy.items()]
    idle = [(cause, book.idle[cause]) for cause in Idle]
    rows += [
        ("idle: " + cause.value, *_seconds(ns, book.wall_ns))
        for cause, ns in idle
        if ns or cause is Idle.UNEXPLAINED
    ]
    rows.append(("sum", *_seconds(book.wall_ns, book.wall_ns)))
    return Sheet(
        f"Device book of the {device_words} {book.device!r}",
        ("what", "s", "of the window"),
        tuple(rows),
        f"busy {_percent(book.busy_share)}, {book.passes} passes",
    )


def speed_sheet(told: Explanation) -> Sheet:
    """How long turns take; percentiles of the successful ones."""
    found = told.rulers
    rows = [
        _spread_row("first audio (from sending), ms", found.first_audio),
        _spread_row("first audio (from intended sending), ms", found.first_audio_intended),
        _spread_row("first audio if whole sentences were gathered, ms", found.whole_sentence),
        _spread_row("whole turn (from sending), ms", found.latency),
        _spread_row("whole turn (from intended sending), ms", found.latency_intended),
        _spread_row("RTF (seconds of work a second of sound)", found.rtf, 3),
    ]
    return Sheet("Speed, successful turns only", _SPREAD, tuple(rows))


def smoothness_sheet(told: Explanation) -> Sheet:
    """Gaps between steps and chunks, and what encoder passes cost."""
    found, lost = told.rulers, told.stalls
    rows = []
    for stage, gaps in found.step_gaps.items():
        rows.append(_spread_row(f"{stage}: from step to step, ms", gaps.every, 1))
        rows.append(_spread_row(f"{stage}: longest of each turn, ms", gaps.longest, 1))
    rows.append(_spread_row("from chunk to chunk, ms", found.chunk_gaps, 1))
    rows.append(_spread_row("silence at real-time playback a turn, ms", found.stalled, 1))
    note = (
        f"turns with a silence: {_percent(found.underrun_share)}; an encoder pass "
        f"({lost.members_mean:.1f} members, longest {lost.longest_ms:.0f} ms) loses "
        f"{lost.person_ms_per_pass:.0f} person-ms ({lost.running_mean:.1f} people running), "
        f"all passes together {lost.person_ms_per_s:.0f} person-ms a second"
    )
    return Sheet("Smoothness", _SPREAD, tuple(rows), note)


def count_sheet(told: Explanation) -> Sheet:
    """Turns answered, good and failed."""
    found, slo = told.rulers, told.rulers.slo
    rows = [
        ("turns answered", str(found.answered), f"{found.turns_per_s:.2f}"),
        ("of these within the SLO (goodput)", "", f"{found.good_per_s:.2f}"),
        *((f"failed, {reason}", str(count), "") for reason, count in found.failures.items()),
    ]
    note = (
        f"SLO: first audio within {slo.first_audio_ms:.0f} ms of the intended sending, "
        f"at most {slo.stalled_ms:.0f} ms of silence"
    )
    return Sheet("Turns", ("what", "turns", "turns/s"), tuple(rows), note)


_SPREAD = ("what", "p50", "p95", "p99", "longest")


def _spread_row(name: str, spread: Spread, digits: int = 0) -> Row:
    values = (spread.p50, spread.p95, spread.p99, spread.longest)
    return name, *("-" if value is None else f"{value:.{digits}f}" for value in values)


def _seconds(ns: int, wall_ns: int) -> tuple[str, str]:
    return f"{ns * 1e-9:.3f}", _percent(ns / max(1, wall_ns))


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def _plain(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
