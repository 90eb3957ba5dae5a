"""What one encoder pass costs everybody else, in person-milliseconds."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtest.ledger.intervals import Interval, Intervals, union
from loadtest.ledger.phases import Kind, Lanes, State, kind
from loadtest.ledger.run import NS_PER_MS, Pass, Run, Turn

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stalls:
    """Encoder passes of the measured window, and who stood still meanwhile.

    A pass loses, for every turn that runs in a decoding loop on the same device, the time that both
    overlap: 30 ms with 64 people running are 1920 person-ms. An encoder on a device of its own
    loses nothing. Turns that failed without a record are not counted.
    """

    passes: int
    members_mean: float
    running_mean: float
    """Running turns during a pass, averaged over the passes' time."""

    person_ms_per_pass: float
    person_ms_per_s: float
    """Lost in a second of the window, by everybody together."""

    longest_ms: float
    """The longest pass."""


def stalls(run: Run, lanes: Lanes) -> Stalls:
    """Count the encoder passes that start in the measured window."""
    start, end = run.window
    passes = [p for p in run.passes if kind(p.stage) is Kind.ENCODER and start <= p.start_ns < end]
    lost = sum((_lost_ms(run, lanes, device, passes) for device in lanes.by_device), 0.0)
    busy_ms = sum(one.end_ns - one.start_ns for one in passes) / NS_PER_MS
    longest = max((one.end_ns - one.start_ns for one in passes), default=0)
    return Stalls(
        passes=len(passes),
        members_mean=sum(one.members for one in passes) / max(1, len(passes)),
        running_mean=lost / busy_ms if busy_ms else 0.0,
        person_ms_per_pass=lost / max(1, len(passes)),
        person_ms_per_s=lost / (run.wall_ns * 1e-9) if run.wall_ns else 0.0,
        longest_ms=longest / NS_PER_MS,
    )


def _lost_ms(run: Run, lanes: Lanes, device: str, passes: list[Pass]) -> float:
    here = [one for one in passes if one.device == device]
    streams = [span for turn in run.turns for span in _decoding(lanes, turn, device)]
    if not here or not streams:
        return 0.0
    origin = min(start for start, _ in streams)
    times, integral = _person_time(streams, origin)
    starts = np.array([one.start_ns - origin for one in here], np.float64)
    ends = np.array([one.end_ns - origin for one in here], np.float64)
    lost = np.interp(ends, times, integral) - np.interp(starts, times, integral)
    return float(lost.sum()) / NS_PER_MS


def _decoding(lanes: Lanes, turn: Turn, device: str) -> Intervals:
    """When a turn runs in any decoding loop of a device; once, even in two loops."""
    running = (p for p in lanes.phases(turn) if p.state is State.RUNNING)
    loops = (p for p in running if kind(p.stage) is not Kind.ENCODER)
    return union(p.interval for p in loops if lanes.device_of(p.stage, p.device) == device)


def _person_time(streams: list[Interval], origin: int) -> tuple[Floats, Floats]:
    """(times, integral): person-ns lived through by all streams up to each time, from `origin`."""
    moments = [(start - origin, 1) for start, _ in streams]
    moments += [(end - origin, -1) for _, end in streams]
    moments.sort()
    times = np.array([time for time, _ in moments], np.float64)
    people = np.cumsum([change for _, change in moments])[:-1]
    return times, np.concatenate([[0.0], np.cumsum(people * np.diff(times))])
