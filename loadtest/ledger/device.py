"""The device book: what a device's time was spent on, and why it was idle.

An idle moment has the cause that comes first in `Idle` of all that hold for any open turn then: a
loop that could have asked for its next step comes before a newcomer that waits to be let in, since
letting him in would not have filled that moment. Busy and idle rows divide the measured window.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from loadtest.ledger.intervals import (
    Interval,
    Intervals,
    difference,
    intersection,
    shares,
    total,
    union,
    within,
)
from loadtest.ledger.phases import Kind, Lanes, Phase, State, hops, kind
from loadtest.ledger.run import Pass, Run, Span, device_name

SEVERAL = "several stages at once"
"""Busy row of a device that can do so (CPU cores); an exclusive one has none."""


class Idle(StrEnum):
    """Rows of an idle device, the stronger claim first."""

    HOST_GAP = "gaps between steps"
    WAKE_UP = "waking up"
    BUILDING = "building features"
    WINDOW = "waiting in the window"
    ADMISSION = "waiting for admission"
    TRANSPORT = "transport"
    ELSEWHERE = "work elsewhere"
    NOTHING = "nothing to do"
    UNEXPLAINED = "unexplained"


MEANING = {
    Idle.HOST_GAP: "somebody runs in a loop that has not asked for its next step: host work",
    Idle.WAKE_UP: "the same, while the loop recorded no work: it had yet to be woken",
    Idle.BUILDING: "nobody runs; an encoder's input is being prepared",
    Idle.WINDOW: "nobody runs; built input waits for companions",
    Idle.ADMISSION: "nobody runs, yet somebody waits to be let into a loop or a batch",
    Idle.TRANSPORT: "turns are on their way between client and stages",
    Idle.ELSEWHERE: "every open turn is on another device",
    Idle.NOTHING: "no turn is open",
    Idle.UNEXPLAINED: "a turn is open and left no record of where it is, as failed ones may",
}
"""What each row holds."""


@dataclass(frozen=True)
class DeviceBook:
    """One device in the measured window, in ns; busy and idle rows add up to `wall_ns`."""

    device: str
    wall_ns: int
    busy: dict[str, int]
    """Stage -> ns, the largest first."""

    idle_parts: dict[Idle, Intervals]
    passes: int

    @property
    def idle(self) -> dict[Idle, int]:
        """Cause -> ns."""
        return {cause: total(parts) for cause, parts in self.idle_parts.items()}

    @property
    def busy_ns(self) -> int:
        """All stages together."""
        return sum(self.busy.values())

    @property
    def busy_share(self) -> float:
        """Busy part of the window, 0 to 1."""
        return self.busy_ns / self.wall_ns if self.wall_ns else 0.0

    def idle_shares(self) -> dict[Idle, float]:
        """Cause -> part of the window, 0 to 1."""
        wall_ns = max(1, self.wall_ns)
        return {cause: ns / wall_ns for cause, ns in self.idle.items()}


def device_books(run: Run, lanes: Lanes) -> tuple[DeviceBook, ...]:
    """One book a device, the busiest first; none where no device was recorded."""
    where = _Whereabouts(run, lanes)
    books = [_book(run, device, lanes, where) for device in lanes.by_device]
    return tuple(sorted(books, key=lambda book: -book.busy_ns))


def _book(run: Run, device: str, lanes: Lanes, where: "_Whereabouts") -> DeviceBook:
    window = [run.window]
    busy = _busy(lanes.by_device[device], run.window)
    idle = difference(window, union(i for intervals in busy.values() for i in intervals))
    claims = [(cause.value, intervals) for cause, intervals in where.claims(device)]
    parts = shares(idle, claims, Idle.NOTHING)
    rows = {stage: total(intervals) for stage, intervals in busy.items()}
    return DeviceBook(
        device,
        run.wall_ns,
        dict(sorted(rows.items(), key=lambda row: -row[1])),
        {cause: parts.get(cause, []) for cause in Idle},
        sum(run.window[0] <= one.start_ns < run.window[1] for one in lanes.by_device[device]),
    )


def _busy(passes: Iterable[Pass], window: Interval) -> dict[str, Intervals]:
    """Stage -> when it alone has the device, and when several have it at once."""
    stages: dict[str, list[Interval]] = {}
    for one in passes:
        stages.setdefault(one.stage, []).append((one.start_ns, one.end_ns))
    merged = {stage: within(union(times), *window) for stage, times in stages.items()}
    several: list[Interval] = []
    for stage, times in merged.items():
        for other in merged:
            if other > stage:
                several += intersection(times, merged[other])
    shared = union(several)
    alone = {stage: difference(times, shared) for stage, times in merged.items()}
    return alone | ({SEVERAL: shared} if shared else {})


class _Whereabouts:
    """Where all turns of a run were, failed ones included as far as they left a record."""

    def __init__(self, run: Run, lanes: Lanes) -> None:
        self._lanes = lanes
        self._phases: list[Phase] = []
        self._hops: list[Interval] = []
        for turn in run.turns:
            found = lanes.phases(turn)
            self._phases += found
            self._hops += hops(turn, found)
        self._open = union((turn.sent_ns, turn.end_ns) for turn in run.turns)
        self._host = run.host

    def claims(self, device: str) -> Iterator[tuple[Idle, Intervals]]:
        """Causes of idleness of one device, the stronger first."""
        here = [p for p in self._phases if self._device_of(p) == device]
        running = _when(p for p in here if p.state in (State.RUNNING, State.HELD))
        host = self._host_work(device)
        yield Idle.HOST_GAP, intersection(running, host) if host else running
        yield Idle.WAKE_UP, running
        yield Idle.BUILDING, _when(p for p in here if p.state is State.BUILDING)
        waiting = [p for p in self._phases if p.state is State.WAITING]
        waiting = [p for p in waiting if self._device_of(p) in (device, None)]
        yield Idle.WINDOW, _when(p for p in waiting if kind(p.stage) is Kind.ENCODER)
        yield Idle.ADMISSION, _when(p for p in waiting if kind(p.stage) is not Kind.ENCODER)
        yield Idle.HOST_GAP, host
        yield Idle.TRANSPORT, union(self._hops)
        yield Idle.ELSEWHERE, _when(p for p in self._phases if self._device_of(p) != device)
        yield Idle.UNEXPLAINED, self._open

    def _device_of(self, phase: Phase) -> str | None:
        """None for what is not on one device only: the queue of a serial loop."""
        return self._lanes.device_of(phase.stage, phase.device)

    def _host_work(self, device: str) -> Intervals:
        """When a loop of this device recorded host work."""
        spans = [span for span in self._host if span.what == "host"]
        here = [span for span in spans if self._device_of_host(span) in (device, None)]
        return union((span.start_ns, span.end_ns) for span in here)

    def _device_of_host(self, span: Span) -> str | None:
        return self._lanes.device_of(span.stage, device_name(str(span.more.get("device", ""))))


def _when(found: Iterable[Phase]) -> Intervals:
    return union(phase.interval for phase in found)
