"""Figures of a simulated run. Times are seconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from loadtest.sim.clock import Device
from loadtest.sim.people import Talk


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed; 0 without values."""
    ranked = sorted(values)
    return ranked[max(0, ceil(share * len(ranked)) - 1)] if ranked else 0.0


@dataclass(frozen=True)
class Figures:
    """Of turns that ended in the measured time; `gap_*` between steps of running streams."""

    turns_per_s: float
    p50_s: float
    p95_s: float
    ttfa_p95_s: float
    busy: float
    late: float
    """Share of turns that took longer than the client waits."""

    gap_p50_s: float
    gap_p99_s: float
    gap_max_s: float
    think_longest_p95_s: float
    """95th percentile over turns of the longest gap between think steps."""

    encoder_members: float
    """Mean members of an encoder pass."""


def measure(
    talks: list[Talk], devices: Sequence[Device], start: float, end: float, timeout_s: float
) -> Figures:
    """Figures of the turns that ended in [start, end)."""
    over = [t for t in talks if t.end is not None and start <= t.end < end]
    latencies = [talk.end - talk.sent for talk in over if talk.end is not None]
    firsts = [talk.first - talk.sent for talk in over if talk.first is not None]
    gaps = [gap for talk in over for stage in ("think", "speak") for gap in talk.gaps(stage)]
    encoded = [p.members for d in devices for p in d.passes if p.stage == "listen"]
    return Figures(
        turns_per_s=len(over) / (end - start),
        p50_s=percentile(latencies, 0.5),
        p95_s=percentile(latencies, 0.95),
        ttfa_p95_s=percentile(firsts, 0.95),
        busy=devices[0].busy(start, end),
        late=sum(one > timeout_s for one in latencies) / max(1, len(over)),
        gap_p50_s=percentile(gaps, 0.5),
        gap_p99_s=percentile(gaps, 0.99),
        gap_max_s=max(gaps, default=0.0),
        think_longest_p95_s=percentile(
            [max(talk.gaps("think"), default=0.0) for talk in over], 0.95
        ),
        encoder_members=sum(encoded) / max(1, len(encoded)),
    )
