"""The request book: what one turn's time was spent on, from sending it to the end of the answer.

Causes claim a turn's time in the order of `Cause`: being computed wins over every kind of waiting,
and waiting for a known other wins over waiting for nobody in particular. The order only matters
where a turn is in two stages at once (one piece spoken while the next is thought). The rows add up
to the turn's latency because they divide it; what no cause claims stays in `UNEXPLAINED`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from loadtest.ledger.intervals import (
    Interval,
    Intervals,
    difference,
    first,
    intersection,
    shares,
    total,
)
from loadtest.ledger.intervals import union as merged
from loadtest.ledger.phases import Kind, Lanes, Phase, State, hops, kind
from loadtest.ledger.run import NS_PER_MS, Pass, Run, Turn


class Cause(StrEnum):
    """Rows of the request book, the stronger claim first."""

    COMPUTING = "computing"
    ENCODER = "waiting for the encoder"
    STEPS = "waiting for others' steps"
    HOST_GAP = "gaps between steps"
    BUILDING = "building features"
    LOCK = "waiting for the locked batch"
    WINDOW = "waiting in the window"
    ADMISSION = "waiting for admission"
    SENDING = "sent late"
    TRANSPORT = "transport"
    UNEXPLAINED = "unexplained"


WINDOW_MAX_NS = 150 * NS_PER_MS
"""Beside a free encoder a turn may wait this long for companions; beyond that the loop does not
answer, which is no window, and stays unexplained."""

MEANING = {
    Cause.COMPUTING: "a pass that the turn is a member of runs on the device",
    Cause.ENCODER: "it could go on, but the device or encoder is taken by a pass for others",
    Cause.STEPS: "it could go on, but the device is taken by a step of another stage or batch",
    Cause.HOST_GAP: "it runs in a loop that has not asked for its next step: host work",
    Cause.BUILDING: "the host prepares its input for the encoder",
    Cause.LOCK: "a batch that nobody may join has to end first",
    Cause.WINDOW: "the encoder is free, but companions are waited for, at most 100 ms",
    Cause.ADMISSION: "from its arrival at a loop to its first step there (the running limit)",
    Cause.SENDING: "from the intended to the real sending: the load generator",
    Cause.TRANSPORT: "between client and stages and from stage to stage: what a proxy tells, else "
    "at most 100 ms a way",
    Cause.UNEXPLAINED: "no span, no pass and no way between two stages covers it",
}
"""What each row holds."""


@dataclass(frozen=True)
class Account:
    """One turn: cause -> the intervals it claims; disjoint, together exactly the turn."""

    turn: Turn
    parts: dict[Cause, Intervals]

    def rows(self, until_ns: int | None = None) -> dict[Cause, int]:
        """Cause -> ns, of the whole turn or of its time up to a moment."""
        if until_ns is None:
            return {cause: total(self.parts[cause]) for cause in Cause}
        upto = [(self.turn.intended_ns, until_ns)]
        return {cause: total(intersection(self.parts[cause], upto)) for cause in Cause}


def account(turn: Turn, lanes: Lanes) -> Account:
    """Divide a turn's time, from its intended sending to its end, among the causes."""
    found = lanes.phases(turn)
    claims: dict[Cause, list[Interval]] = {cause: [] for cause in Cause}
    for phase in found:
        for cause, intervals in _claims(phase, lanes):
            claims[cause] += intervals
    claims[Cause.SENDING].append((turn.intended_ns, turn.sent_ns))
    claims[Cause.TRANSPORT] += hops(turn, found)
    whole = merged([(turn.intended_ns, turn.end_ns)])
    ordered = [(cause.value, merged(claims[cause])) for cause in Cause]
    parts = shares(whole, ordered, Cause.UNEXPLAINED)
    return Account(turn, {cause: parts[cause] for cause in Cause})


def _claims(phase: Phase, lanes: Lanes) -> Iterator[tuple[Cause, Intervals]]:
    match phase.state, kind(phase.stage):
        case State.BUILDING, _:
            yield Cause.BUILDING, [phase.interval]
        case State.RUNNING, _:
            yield from _running(phase, lanes)
        case State.HELD, _ if lanes.locked:
            yield Cause.LOCK, [phase.interval]
        case State.HELD, _:
            yield from _taken([phase.interval], lanes.beside(*phase.place))
            yield Cause.HOST_GAP, [phase.interval]
        case State.GATHERED, _:
            yield from _taken([phase.interval], lanes.beside(*phase.place))
            yield Cause.WINDOW, [phase.interval]
        case State.WAITING, Kind.ENCODER:
            yield from _encoder_queue(phase, lanes)
        case State.WAITING, Kind.LOCK:
            yield Cause.LOCK, [phase.interval]
        case State.WAITING, Kind.FEED:
            yield from _taken([phase.interval], lanes.beside(*phase.place))
            yield Cause.WINDOW, first([phase.interval], WINDOW_MAX_NS)
        case _:
            yield Cause.ADMISSION, [phase.interval]


def _running(phase: Phase, lanes: Lanes) -> Iterator[tuple[Cause, Intervals]]:
    """Own passes; where the next is asked for and does not run, whose pass does; else host gap.

    A serial loop (the monolith) asks for nothing while it waits for another pass of its own, so all
    its time outside own passes is waiting for that pass.
    """
    if lanes.device_of(phase.stage, phase.device) is None:
        yield Cause.COMPUTING, [phase.interval]
        return
    own = lanes.own(phase)
    computing = _executing(own)
    yield Cause.COMPUTING, computing
    rest = difference([phase.interval], computing)
    asked = rest if phase.serial else intersection(rest, lanes.in_flight(*phase.place))
    mine = set(map(id, own))
    others = [p for p in lanes.beside(*phase.place) if id(p) not in mine]
    yield from _taken(asked, others)
    yield Cause.HOST_GAP, [phase.interval]


def _encoder_queue(phase: Phase, lanes: Lanes) -> Iterator[tuple[Cause, Intervals]]:
    """Behind another encoder pass, asked for or running; otherwise in the window."""
    asked = intersection([phase.interval], lanes.in_flight(*phase.place))
    yield from _taken(asked, lanes.beside(*phase.place))
    behind = intersection([phase.interval], lanes.told_passes(phase.stage))
    yield Cause.ENCODER, behind
    free = difference([phase.interval], merged([*asked, *behind]))
    yield Cause.WINDOW, first(free, WINDOW_MAX_NS)


def _taken(waiting: Intervals, passes: Iterable[Pass]) -> Iterator[tuple[Cause, Intervals]]:
    """Waiting for the device, by the kind of pass that has it."""
    encoders: list[Pass] = []
    steps: list[Pass] = []
    for one in passes:
        (encoders if kind(one.stage) is Kind.ENCODER else steps).append(one)
    yield Cause.ENCODER, intersection(waiting, _executing(encoders))
    yield Cause.STEPS, intersection(waiting, _executing(steps))


def _executing(passes: Iterable[Pass]) -> Intervals:
    return merged((one.start_ns, one.end_ns) for one in passes)


@dataclass(frozen=True)
class RequestBook:
    """The measured, successful turns of a run; row i of `table` is turn i, column j is cause j.

    `table`, `first_audio`: int64 [turns, causes] ns, of the whole turn and up to its first sound.
    """

    turns: tuple[Turn, ...]
    table: "np.ndarray[tuple[int, int], np.dtype[np.int64]]"
    first_audio: "np.ndarray[tuple[int, int], np.dtype[np.int64]]"

    @classmethod
    def of(cls, run: Run, lanes: Lanes) -> "RequestBook":
        """Of `run.answered`: what failed has no complete record, it is counted by reason."""
        accounts = [account(turn, lanes) for turn in run.answered]
        whole = [list(one.rows().values()) for one in accounts]
        first = [list(one.rows(_first_sound(one.turn)).values()) for one in accounts]
        shape = (len(accounts), len(Cause))
        return cls(
            run.answered,
            np.array(whole, np.int64).reshape(shape),
            np.array(first, np.int64).reshape(shape),
        )

    def mean_ms(self, *, first_audio: bool = False) -> dict[Cause, float]:
        """Cause -> ms per turn."""
        table = self.first_audio if first_audio else self.table
        means = table.mean(0) / NS_PER_MS if len(table) else np.zeros(len(Cause))
        return dict(zip(Cause, map(float, means), strict=True))

    def shares(self, *, first_audio: bool = False) -> dict[Cause, float]:
        """Cause -> part of all turns' time, 0 to 1."""
        means = self.mean_ms(first_audio=first_audio)
        whole = sum(means.values())
        return {cause: value / whole if whole else 0.0 for cause, value in means.items()}

    def unexplained(self, percentile: float) -> float:
        """Percentile over turns of the unexplained part of the turn's latency, 0 to 1."""
        if not len(self.table):
            return 0.0
        whole = self.table.sum(1)
        part = self.table[:, list(Cause).index(Cause.UNEXPLAINED)] / np.maximum(whole, 1)
        return float(np.percentile(part, percentile))

    @property
    def worst_wait(self) -> Cause:
        """The row that takes most, computing and unexplained apart."""
        means = self.mean_ms()
        waits = [c for c in Cause if c not in (Cause.COMPUTING, Cause.UNEXPLAINED)]
        return max(waits, key=lambda cause: means[cause])

    def slow(self, percentile: float = 95.0) -> Turn | None:
        """The turn whose latency lies at a percentile."""
        order = sorted(self.turns, key=lambda turn: turn.end_ns - turn.intended_ns)
        return order[min(len(order) - 1, int(len(order) * percentile / 100))] if order else None


def row_name(cause: StrEnum) -> str:
    """Short name of a row, as in the keys of figures: "host gap"."""
    return cause.name.lower().replace("_", " ")


def _first_sound(turn: Turn) -> int:
    return turn.sound[0][0] if turn.sound else turn.end_ns
