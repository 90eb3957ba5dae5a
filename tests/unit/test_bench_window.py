"""What the window's measurement makes of its runs, and that each of its figures can be wrong."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress

from loadtest.sim.clock import Clock
from loadtest.stages import encoder
from loadtest.stages.encoder import Caller, Loneliness, Policy
from loadtest.stages.window import (
    BURST,
    BURSTS,
    MIXED_LOAD,
    TARGETS,
    Played,
    Rounds,
    burst,
    burst_figures,
    lone,
    lone_figures,
    mixed_figures,
    poisson,
    poisson_figures,
    window,
)
from python_backends.scheduling.window import ConditionalWindow, Reason

Found = dict[str, float | None]


def caller(arrived_s: float, latency_s: float = 0.04, added_s: float = 0.0, **more: Any) -> Caller:
    ready_s = arrived_s + 0.001
    known = {"reason": Reason.NO_COMPANION, "members": 1, "free_s": 0.0}
    stamps = {"ready_s": ready_s, "released_s": ready_s + added_s, **known, **more}
    return Caller(0, 0.001, arrived_s, answered_s=arrived_s + latency_s, **stamps)


def played(*callers: Caller, alone_s: float = 0.0) -> Played:
    alone = Loneliness(Clock())
    alone.seconds = alone_s
    return Played(callers, alone)


def rounds(ours: Played, none: Played, fixed: Played) -> Rounds:
    return {Policy.CONDITIONAL: [ours], Policy.NONE: [none], Policy.FIXED: [fixed]}


def unmet(found: Found) -> set[str]:
    return {name for name, value in found.items() if name in TARGETS and not met(name, value)}


def met(name: str, value: float | None) -> bool:
    assert value is not None
    return TARGETS[name].met(value)


def test_a_burst_that_no_window_serves_as_fast_meets_no_target() -> None:
    fast, slow = played(caller(0, 0.8), caller(0, 0.8)), played(caller(0, 1.0), caller(0, 1.0))
    assert burst_figures(rounds(fast, slow, slow))["window_burst_by_none_throughput"] == (
        pytest.approx(1.25)
    )
    assert unmet(burst_figures(rounds(fast, slow, slow))) == set()
    assert unmet(burst_figures(rounds(slow, fast, slow))) == {"window_burst_by_none_throughput"}


def test_random_arrivals_are_judged_by_whichever_other_policy_is_better() -> None:
    slow, fast = (played(caller(0, late), caller(1, late)) for late in (0.05, 0.04))
    for one, other in ((slow, fast), (fast, slow)):
        found = poisson_figures(30, rounds(slow, one, other))
        assert found["window_poisson_30_by_better_p50"] == pytest.approx(1.25)
        assert unmet(found) == {"window_poisson_30_by_better_p50"}
    assert unmet(poisson_figures(30, rounds(fast, slow, slow))) == set()
    stuck = played(caller(0, 0.04), caller(0, 0.04), caller(1, 0.1))
    quick = played(caller(0, 0.04), caller(0, 0.04), caller(0.9, 0.1))
    found = poisson_figures(30, rounds(stuck, stuck, quick))
    assert unmet(found) == {"window_poisson_30_by_better_throughput"}


def test_a_lone_caller_who_waits_or_leaves_for_another_reason_is_found() -> None:
    good, late = played(caller(0)), played(caller(0), caller(1, added_s=0.006))
    assert unmet(lone_figures(rounds(good, good, played(caller(0, added_s=0.006))))) == set()
    assert unmet(lone_figures(rounds(late, good, late))) == {
        "window_lone_added_ms",
        "window_lone_fixed_added_ms",
    }
    windowed = played(caller(0), caller(1, reason=Reason.WINDOW))
    found = lone_figures(rounds(windowed, good, played(caller(0, added_s=0.006))))
    assert found["window_lone_no_companion_share"] == 0.5
    assert unmet(found) == {"window_lone_no_companion_share"}


def test_a_caller_who_waits_for_another_shape_is_found() -> None:
    good, bad = played(caller(0)), played(caller(0, added_s=0.007), alone_s=0.001)
    assert unmet(mixed_figures(rounds(good, good, good))) == set()
    assert unmet(mixed_figures(rounds(bad, good, good))) == {
        "window_mixed_other_bucket_wait_ms",
        "window_mixed_longest_added_ms",
    }


def test_waiting_while_the_encoder_is_busy_is_not_the_windows() -> None:
    assert caller(0, added_s=0.5, free_s=0.5).added_s == pytest.approx(0.001)


class Pooled(ConditionalWindow[int, Caller]):
    """Waits for whoever is being built, of any shape."""

    def _reason(self, bucket: int, *rest: Any) -> Reason | None:
        own, self._building = self._building, Counter({bucket: self._building.total()})
        try:
            return super()._reason(bucket, *rest)
        finally:
            self._building = own


def test_a_window_that_pools_its_shapes_makes_callers_wait_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = poisson(MIXED_LOAD, Policy.CONDITIONAL, seed=1, buckets=3)
    monkeypatch.setattr(encoder, "ConditionalWindow", Pooled)
    wrong = poisson(MIXED_LOAD, Policy.CONDITIONAL, seed=1, buckets=3)
    assert right.alone.seconds == pytest.approx(0, abs=1e-9)
    assert wrong.alone.seconds > 0.01


@pytest.mark.parametrize("play", [burst, lone, lambda policy, seed: poisson(60, policy, seed)])
@pytest.mark.parametrize("policy", Policy)
def test_everybody_is_answered_and_no_two_passes_overlap(
    policy: Policy, play: Callable[[Policy, int], Played]
) -> None:
    callers = play(policy, 3).callers
    assert all(c.arrived_s < c.ready_s <= c.released_s < c.answered_s for c in callers)
    passes = sorted({(c.released_s, c.answered_s, c.members) for c in callers})
    assert sum(members for *_, members in passes) == len(callers)
    assert all(a[1] <= b[0] for a, b in pairwise(passes))
    assert all(c.free_s <= c.released_s for c in callers)


def test_every_policy_has_the_same_arrivals_and_a_seed_gives_the_same_run_again() -> None:
    runs = [poisson(30, policy, seed=5).callers for policy in Policy]
    assert len({tuple((c.arrived_s, c.build_s) for c in callers) for callers in runs}) == 1
    again = poisson(30, Policy.NONE, seed=5).callers
    assert [c.answered_s for c in again] == [c.answered_s for c in runs[0]]


def test_each_policy_leaves_for_its_own_reasons() -> None:
    assert set(lone(Policy.FIXED, 0).reasons) == {Reason.WINDOW}
    assert set(lone(Policy.CONDITIONAL, 0).reasons) == {Reason.NO_COMPANION}
    assert burst(Policy.CONDITIONAL, 0).reasons == {Reason.FULL: BURST * BURSTS}
    assert min(c.members for c in burst(Policy.NONE, 0).callers) == 1


def test_one_round_measures_every_target(tmp_path: Path) -> None:
    found = window(tmp_path, 1, Progress(disable=True))
    assert TARGETS.keys() <= found.figures.keys()
    assert unmet(found.figures) == set()
    assert set(found.detail["first_round"]["burst"]) == set(Policy)
