"""What a turn was doing at every moment: its spans, read with the device's passes beside them."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate, pairwise

from loadtest.ledger.intervals import Interval, Intervals, difference, intersection, union
from loadtest.ledger.run import NS_PER_MS, Pass, Run, Span, Turn, device_name

MONOLITH = "monolith"
VOCODER = "vocoder"
REMOTE = "remote"
"""What a proxy's span is: it wraps those of its stage, which another server wrote, and the ways."""

HOP_MAX_NS = 100 * NS_PER_MS
"""A way between two processes may explain this much; what it took beyond is unexplained."""


class Kind(Enum):
    """The kinds of compute."""

    ENCODER = "encoder"
    LOOP = "autoregressive"
    LOCK = "diffusion"
    FEED = "feed-forward"


_KINDS = {
    "listen": Kind.ENCODER,
    "encode": Kind.ENCODER,
    "acoustic": Kind.LOCK,
    VOCODER: Kind.FEED,
}


def kind(stage: str) -> Kind:
    """Of a stage, by its plain name."""
    return _KINDS.get(stage, Kind.LOOP)


class State(Enum):
    """What a stage is doing for a turn."""

    BUILDING = "building"
    WAITING = "waiting"
    RUNNING = "running"
    GATHERED = "gathered"
    """Encoded, and kept until others are too, so that they decode together."""

    HELD = "held"
    """Let into a serial loop, which is between two of its phases."""


_STATES = {
    "build": State.BUILDING,
    "queue": State.WAITING,
    "gather": State.GATHERED,
    "compute": State.RUNNING,
    "first_token": State.RUNNING,
    "listen": State.RUNNING,
    "think": State.RUNNING,
    "speak": State.RUNNING,
    "acoustic": State.RUNNING,
    VOCODER: State.RUNNING,
}


@dataclass(frozen=True, slots=True)
class Phase:
    """A turn in one stage. `serial`: the stage shares one loop with all others (the monolith);
    `device`: which one computed, where a stage with replicas has told."""

    stage: str
    state: State
    start_ns: int
    end_ns: int
    serial: bool = False
    piece: int = 0
    device: str = ""

    @property
    def interval(self) -> Interval:
        """From start to end."""
        return self.start_ns, self.end_ns

    @property
    def place(self) -> tuple[str, int, int, str]:
        """Stage, interval and device, as `Lanes` is asked."""
        return self.stage, self.start_ns, self.end_ns, self.device


class Lanes:
    """A run's passes, by stage and by device, ready to be looked up by time."""

    def __init__(self, run: Run) -> None:
        self.by_device: dict[str, list[Pass]] = {}
        self.by_stage: dict[str, list[Pass]] = {}
        self._by_replica: dict[tuple[str, str], list[Pass]] = {}
        for one in run.passes:
            self.by_device.setdefault(one.device, []).append(one)
            self.by_stage.setdefault(one.stage, []).append(one)
            self._by_replica.setdefault((one.stage, one.device), []).append(one)
        self._told_passes = _told_passes(run)
        self._phases: dict[str, list[Phase]] = {}
        self._starts = {id(x): [one.start_ns for one in x] for x in self._all()}
        self._ends = {id(x): list(accumulate((p.end_ns for p in x), max)) for x in self._all()}

    def device_of(self, stage: str, told: str = "") -> str | None:
        """Where a stage computes: on the device it has `told`, else on its first; None where no
        pass of it was recorded."""
        passes = self._passes(stage, told)
        return passes[0].device if passes else None

    def of_stage(self, stage: str, start_ns: int, end_ns: int, device: str = "") -> list[Pass]:
        """Passes of a stage (on one device) that run between two moments, if only partly."""
        return self._between(self._passes(stage, device), start_ns, end_ns)

    def in_flight(self, stage: str, start_ns: int, end_ns: int, device: str = "") -> Intervals:
        """When a stage had asked its device for a pass that was not over."""
        passes = self.of_stage(stage, start_ns, end_ns, device)
        return union((one.submitted_ns, one.end_ns) for one in passes)

    def told_passes(self, stage: str) -> Intervals:
        """When a stage whose device keeps no log computed for anybody, by the turns' own spans."""
        return [] if stage in self.by_stage else self._told_passes.get(stage, [])

    def beside(self, stage: str, start_ns: int, end_ns: int, device: str = "") -> list[Pass]:
        """Passes of any stage on the device of `stage` that run between two moments."""
        where = self.device_of(stage, device)
        passes = self.by_device.get(where, _NONE) if where else _NONE
        return self._between(passes, start_ns, end_ns)

    def phases(self, turn: Turn) -> list[Phase]:
        """All phases of a turn, by start; each once; spans that wrap others are none."""
        if turn.turn not in self._phases:
            told = (_phase(span) for span in turn.spans)
            found = [phase for phase in dict.fromkeys(told) if phase is not None]
            found += _unreported_vocoder(turn, self)
            found += _held(found)
            self._phases[turn.turn] = sorted(found, key=lambda phase: phase.interval)
        return self._phases[turn.turn]

    @property
    def locked(self) -> bool:
        """Some stage computes in locked batches; a serial loop then locks all of its batches."""
        return any(kind(stage) is Kind.LOCK for stage in self.by_stage)

    def own(self, phase: Phase) -> list[Pass]:
        """Passes that a running turn was a member of.

        Everybody who runs in a stage takes part in each of its passes; one is a turn's own when its
        middle lies in the turn's span, so that a clock read late does not lose a step.
        """
        passes = self.of_stage(*phase.place)
        return [one for one in passes if phase.start_ns <= one.middle_ns <= phase.end_ns]

    def _passes(self, stage: str, device: str) -> list[Pass]:
        everywhere = self.by_stage.get(stage, _NONE)
        return self._by_replica.get((stage, device), everywhere) if device else everywhere

    def _all(self) -> Iterator[list[Pass]]:
        yield from self.by_device.values()
        yield from self.by_stage.values()
        yield from self._by_replica.values()

    def _between(self, passes: list[Pass], start_ns: int, end_ns: int) -> list[Pass]:
        if not passes:
            return []
        first = bisect_right(self._ends[id(passes)], start_ns)
        last = bisect_left(self._starts[id(passes)], end_ns)
        return passes[first:last]


_NONE: list[Pass] = []


def _told_passes(run: Run) -> dict[str, Intervals]:
    """Encoder stage -> when any turn's span says that it computed."""
    found: dict[str, list[Interval]] = {}
    for turn in run.turns:
        for span in turn.spans:
            if span.what == "compute" and kind(span.stage) is Kind.ENCODER:
                found.setdefault(span.stage, []).append((span.start_ns, span.end_ns))
    return {stage: union(intervals) for stage, intervals in found.items()}


def hops(turn: Turn, found: Sequence[Phase]) -> Intervals:
    """The turn's ways between client and stages and between one stage and the next.

    A hop is the time between spans of different stages or pieces that no span covers, up to
    `HOP_MAX_NS`; a hole of one piece within one stage is none, nor is a whole turn without a span.
    What a proxy has told to be its way there and back is one, however long it took.
    """
    covered = union(phase.interval for phase in found)
    holes = difference([(turn.sent_ns, turn.end_ns)], covered) if found else []
    ways = [part for hole in holes for part in _cut(hole, found) if _crosses(part, found)]
    told = union((span.start_ns, span.end_ns) for span in turn.spans if span.what == REMOTE)
    untold = difference(ways, told)
    capped = [(start, min(end, start + HOP_MAX_NS)) for start, end in untold]
    return union([*intersection(ways, told), *capped])


def _cut(hole: Interval, found: Sequence[Phase]) -> Iterator[Interval]:
    """A hole in parts, where a phase that took no time lies in it."""
    inside = [phase.start_ns for phase in found if hole[0] < phase.start_ns < hole[1]]
    return pairwise([hole[0], *sorted(inside), hole[1]])


def _crosses(hole: Interval, found: Sequence[Phase]) -> bool:
    before = [phase for phase in found if phase.end_ns <= hole[0]]
    after = [phase for phase in found if phase.start_ns >= hole[1]]
    if not before or not after:
        return True
    last = max(before, key=lambda phase: (phase.end_ns, phase.start_ns))
    following = min(after, key=lambda phase: phase.start_ns)
    if last.serial and following.serial:
        return False
    return (last.stage, last.piece) != (following.stage, following.piece)


def _phase(span: Span) -> Phase | None:
    state = _STATES.get(span.what)
    if state is None:
        return None
    serial = span.stage == MONOLITH
    stage = span.what if serial and state is State.RUNNING else span.stage
    device = device_name(str(span.more.get("device", "")))
    return Phase(stage, state, span.start_ns, span.end_ns, serial, span.piece, device)


def _held(found: Sequence[Phase]) -> list[Phase]:
    """The holes between a turn's phases in a serial loop; each belongs to the phase behind it."""
    serial = sorted((p for p in found if p.serial), key=lambda phase: phase.interval)
    until = list(accumulate((phase.end_ns for phase in serial), max))
    pairs = zip(until, serial[1:], strict=False)
    return [
        Phase(later.stage, State.HELD, end_ns, later.start_ns, serial=True)
        for end_ns, later in pairs
        if end_ns < later.start_ns
    ]


def _unreported_vocoder(turn: Turn, lanes: Lanes) -> list[Phase]:
    """A native vocoder writes no EVENTS: its last pass before a chunk arrived made that chunk."""
    reported = any(span.stage == VOCODER and span.what in _STATES for span in turn.spans)
    if VOCODER not in lanes.by_stage or reported:
        return []
    found: list[Phase] = []
    for span in turn.spans:
        if span.stage != "acoustic" or span.what != "compute":
            continue
        arrived_ns = next((at for at in turn.chunks_ns if at >= span.end_ns), turn.end_ns)
        between = lanes.of_stage(VOCODER, span.end_ns, arrived_ns)
        made = [p for p in between if p.start_ns >= span.end_ns and p.end_ns <= arrived_ns]
        if made:
            start_ns, end_ns = made[-1].start_ns, made[-1].end_ns
            piece = span.piece
            found.append(Phase(VOCODER, State.WAITING, span.end_ns, start_ns, piece=piece))
            found.append(Phase(VOCODER, State.RUNNING, start_ns, end_ns, piece=piece))
    return found
