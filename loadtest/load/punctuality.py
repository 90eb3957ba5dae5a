"""Was the generator itself on time? A late one measures itself, not the server.

Two things are watched while the run is measured: how late requests left (`sent_ns - intended_ns`),
and how late a heartbeat of `BEAT_S` woke, which bounds how late an arrival may have been noticed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

BEAT_S = 0.01
LATE_MS = 20.0
SHARES = (0.5, 0.95, 0.99)
LATE_SHARE_OF_GAP = 0.05


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of `values` do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def shares(values: Sequence[float]) -> dict[str, float]:
    """How many there are, and p50, p95 and p99 of at least one."""
    found = {f"p{100 * share:g}": round(percentile(values, share), 3) for share in SHARES}
    return {"count": len(values), **found}


def limit_ms(mean_gap_ms: float | None) -> float:
    """How late the p99 may be: 20 ms, or 5 % of the mean gap between arrivals if that is more."""
    return max(LATE_MS, LATE_SHARE_OF_GAP * (mean_gap_ms or 0.0))


@dataclass(frozen=True)
class Punctuality:
    """What the generator says about itself, as in run.json under `generator`."""

    late_p99_ms: float
    late_max_ms: float
    loop_late_p99_ms: float
    loop_late_max_ms: float
    limit_ms: float
    sent: int
    valid: bool
    why: str


def judge(late_ms: Sequence[float], loop_late_ms: Sequence[float], limit: float) -> Punctuality:
    """The verdict over all sends and heartbeats of the measured time."""
    sends, beats = _p99_and_max(late_ms), _p99_and_max(loop_late_ms)
    why = []
    if not late_ms:
        why.append("no turn was sent in the measured time")
    if sends[0] > limit:
        why.append(f"1 % of the requests left {sends[0]:.1f} ms late or more (limit {limit:g} ms)")
    if beats[0] > limit:
        why.append(
            f"1 % of the heartbeats woke {beats[0]:.1f} ms late or more (limit {limit:g} ms)"
        )
    return Punctuality(*sends, *beats, limit, len(late_ms), not why, "; ".join(why))


def _p99_and_max(late_ms: Sequence[float]) -> tuple[float, float]:
    if not late_ms:
        return 0.0, 0.0
    return round(percentile(late_ms, 0.99), 3), round(max(late_ms), 3)
