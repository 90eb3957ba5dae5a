"""Rulers: how fast and how smooth a run was, each with its definition.

All are read from a run folder. Percentiles are of successful turns only and therefore stand beside
the failures by reason: a server that drops its slow turns has lovely percentiles.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from loadtest.ledger.phases import Lanes, State
from loadtest.ledger.run import NS_PER_MS, Run, Turn


@dataclass(frozen=True)
class Spread:
    """Percentiles of `n` values, in the unit of the values; None without any."""

    n: int
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    longest: float | None = None

    @classmethod
    def of(cls, values: "Iterable[float] | NDArray[np.float64]") -> "Spread":
        """Of any numbers; percentiles by linear interpolation."""
        array = np.fromiter(values, np.float64)
        if not array.size:
            return cls(0)
        p50, p95, p99 = (float(q) for q in np.percentile(array, (50, 95, 99)))
        return cls(array.size, float(array.mean()), p50, p95, p99, float(array.max()))


@dataclass(frozen=True)
class Slo:
    """What a turn must keep to count as good."""

    first_audio_ms: float = 1500.0
    """From the intended sending to the first sound."""

    stalled_ms: float = 100.0
    """Silence inside the answer, at real-time playback."""


def first_audio_ms(turn: Turn, *, intended: bool = False) -> float | None:
    """TTFA: from sending the request to the arrival of the first chunk with sound.

    `intended` counts from when it should have been sent, which a generator (or a user) that is held
    up by earlier answers would otherwise hide.
    """
    return _since(turn, turn.sound[0][0], intended) if turn.sound else None


def whole_sentence_ms(turn: Turn) -> float | None:
    """First audio if the service gathered the whole answer before it let any of it be heard.

    The work and so the RTF are the same; only the user's wait differs.
    """
    return _since(turn, turn.sound[-1][0], False) if turn.sound else None


def latency_ms(turn: Turn, *, intended: bool = False) -> float:
    """From sending (or intended sending) to the end of the answer."""
    return _since(turn, turn.end_ns, intended)


def real_time_factor(turn: Turn) -> float | None:
    """RTF: seconds from sending to the end of the answer, by seconds of returned sound."""
    audio_ms = sum(turn.chunk_audio_ms)
    return latency_ms(turn) / audio_ms if audio_ms else None


def chunk_gaps_ms(turn: Turn) -> list[float]:
    """Between the arrivals of consecutive chunks with sound."""
    arrived = [at for at, _ in turn.sound]
    return [(b - a) / NS_PER_MS for a, b in pairwise(arrived)]


@dataclass(frozen=True)
class Underrun:
    """Silences in the middle of an answer."""

    times: int
    stalled_ms: float


def underrun(turn: Turn) -> Underrun:
    """What a listener hears of late chunks: playback starts with the first chunk and never rushes.

    A chunk that arrives when everything before it has been played leaves a silence until then.
    """
    times, stalled_ns, played_ns = 0, 0.0, 0.0
    for number, (arrived_ns, audio_ms) in enumerate(turn.sound):
        late_ns = arrived_ns - played_ns
        if number and late_ns > 0:
            times += 1
            stalled_ns += late_ns
        played_ns = max(played_ns, arrived_ns) + audio_ms * NS_PER_MS
    return Underrun(times, stalled_ns / NS_PER_MS)


def step_gaps_ms(turn: Turn, lanes: Lanes) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """(stage, gaps): between the ends of consecutive passes that the turn took part in.

    Only passes while the turn is in that stage; a gap holds one step's own compute as well, as a
    token-to-token time does. Nothing for stages without device passes.
    """
    for phase in lanes.phases(turn):
        if phase.state is State.RUNNING:
            ends = [one.end_ns for one in lanes.own(phase)]
            if len(ends) > 1:
                yield phase.stage, np.diff(np.array(ends, np.int64)) / NS_PER_MS


def is_good(turn: Turn, slo: Slo) -> bool:
    """Answered, first heard in time, and without a silence that is noticed."""
    first = first_audio_ms(turn, intended=True)
    if not turn.is_ok or first is None:
        return False
    return first <= slo.first_audio_ms and underrun(turn).stalled_ms <= slo.stalled_ms


@dataclass(frozen=True)
class StepGaps:
    """Smoothness of one stage for those who run in it, ms."""

    every: Spread
    """All gaps of all turns."""

    longest: Spread
    """The longest gap of each turn."""


@dataclass(frozen=True)
class Rulers:
    """All figures of a run's measured turns; times in ms, of successful turns."""

    turns: int
    answered: int
    failures: dict[str, int]
    """outcome: reason -> turns."""

    turns_per_s: float
    """Successful turns by the seconds of the measured window."""

    good_per_s: float
    """Goodput: of these, the ones that keep `slo`."""

    slo: Slo
    latency: Spread
    latency_intended: Spread
    first_audio: Spread
    first_audio_intended: Spread
    whole_sentence: Spread
    rtf: Spread
    chunk_gaps: Spread
    longest_chunk_gap: Spread
    step_gaps: dict[str, StepGaps]
    underrun_share: float
    """Part of the successful turns with at least one silence."""

    stalled: Spread
    """Silence per turn, ms."""


def rulers(run: Run, lanes: Lanes, slo: Slo | None = None) -> Rulers:
    """Measure a run."""
    slo = slo or Slo()
    ok = run.answered
    seconds = run.wall_ns * 1e-9
    silences = [underrun(turn) for turn in ok]
    return Rulers(
        turns=len(run.measured),
        answered=len(ok),
        failures=dict(Counter(t.failure for t in run.measured if not t.is_ok).most_common()),
        turns_per_s=len(ok) / seconds if seconds else 0.0,
        good_per_s=sum(is_good(turn, slo) for turn in ok) / seconds if seconds else 0.0,
        slo=slo,
        latency=Spread.of(map(latency_ms, ok)),
        latency_intended=Spread.of(latency_ms(turn, intended=True) for turn in ok),
        first_audio=Spread.of(_known(map(first_audio_ms, ok))),
        first_audio_intended=Spread.of(_known(first_audio_ms(t, intended=True) for t in ok)),
        whole_sentence=Spread.of(_known(map(whole_sentence_ms, ok))),
        rtf=Spread.of(_known(map(real_time_factor, ok))),
        chunk_gaps=Spread.of(gap for turn in ok for gap in chunk_gaps_ms(turn)),
        longest_chunk_gap=Spread.of(max(gaps) for t in ok if (gaps := chunk_gaps_ms(t))),
        step_gaps=_step_gaps(ok, lanes),
        underrun_share=sum(one.times > 0 for one in silences) / max(1, len(ok)),
        stalled=Spread.of(one.stalled_ms for one in silences),
    )


def _step_gaps(turns: Iterable[Turn], lanes: Lanes) -> dict[str, StepGaps]:
    found: dict[str, list[NDArray[np.float64]]] = {}
    for turn in turns:
        for stage, gaps in step_gaps_ms(turn, lanes):
            found.setdefault(stage, []).append(gaps)
    return {
        stage: StepGaps(Spread.of(np.concatenate(each)), Spread.of(gaps.max() for gaps in each))
        for stage, each in found.items()
    }


def _since(turn: Turn, moment_ns: int, intended: bool) -> float:
    return (moment_ns - (turn.intended_ns if intended else turn.sent_ns)) / NS_PER_MS


def _known(values: Iterable[float | None]) -> Iterator[float]:
    return (value for value in values if value is not None)
