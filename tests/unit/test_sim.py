"""The simulator: virtual time, one device, and figures that can be worked out by hand."""

import pytest

from loadtest.device.profile import Profile
from loadtest.sim import tables
from loadtest.sim.__main__ import SEED40
from loadtest.sim.clock import Clock, Device
from loadtest.sim.figures import measure, percentile
from loadtest.sim.fit import bisect, with_gap
from loadtest.sim.people import People, Talk
from loadtest.sim.runs import TUNED, Crowd, Knobs, Staging, monolith, stages
from loadtest.sim.stages import Consideration

PROFILE = Profile.named("profile")
DIFFUSION = Profile.named("profile-diffusion")
GATHER = Staging(consideration=Consideration(cap=2, patience_s=0.1, gather=True))


def crowd(people: int, stagger_s: float = 0.0) -> Crowd:
    return Crowd(people, stagger_s, warm_up_s=20.0, measured_s=50.0)


def test_actions_run_in_the_order_of_their_times_then_of_asking() -> None:
    clock, seen = Clock(), []
    for name, time in (("c", 2.0), ("a", 1.0), ("b", 1.0)):
        clock.at(time, lambda name=name: seen.append((name, clock.now)))  # type: ignore[misc]
    clock.at(9.0, lambda: seen.append(("late", clock.now)))
    clock.run(until=5.0)
    assert seen == [("a", 1.0), ("b", 1.0), ("c", 2.0)]


def test_the_device_runs_one_task_at_a_time_first_come_first_served() -> None:
    device = Device()
    passes = [device.reserve(now, "think", 1, 1.0) for now in (0.0, 0.5, 5.0)]
    assert [(one.start, one.end) for one in passes] == [(0.0, 1.0), (1.0, 2.0), (5.0, 6.0)]
    assert device.busy(1.5, 5.5) == pytest.approx(0.25)


def test_people_speak_again_when_they_are_answered() -> None:
    clock = Clock()
    heard: list[float] = []

    def send(talk: Talk) -> None:
        heard.append(clock.now)
        clock.at(clock.now + 2.0, lambda: everybody.answered(talk))

    everybody = People(clock, 2, send, stagger_s=1.0)
    clock.run(until=5.0)
    assert heard == [0.0, 0.5, 2.0, 2.5, 4.0, 4.5]


def test_figures_are_of_turns_that_ended_in_the_measured_time() -> None:
    talks = [Talk(0.0, first=0.5, end=1.0), Talk(1.0, first=2.0, end=3.0), Talk(3.0)]
    talks[1].steps = {"think": [1.0, 1.5, 1.6]}
    found = measure(talks, [Device()], 2.0, 4.0, timeout_s=1.5)
    assert (found.turns_per_s, found.p50_s, found.ttfa_p95_s, found.late) == (0.5, 2.0, 1.0, 1.0)
    assert found.gap_max_s == pytest.approx(0.5)
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_one_person_takes_what_the_costs_say() -> None:
    device_s = 0.030 + 40 * 0.00865 + 75 * 0.00474
    alone = monolith(PROFILE, crowd(1))
    assert alone.p50_s == pytest.approx(device_s + 115 * 0.004, rel=0.01)
    waits_for_its_round = 0.004
    first_s = 0.030 + 40 * 0.01265 + 4 * 0.00474 + 3 * 0.004
    assert alone.ttfa_p95_s == pytest.approx(waits_for_its_round + first_s)
    staged = stages(PROFILE, crowd(1), Staging(wakeup_ms=0.0))
    assert staged.p50_s == pytest.approx(device_s + 0.002)


def test_the_monolith_has_its_plateau_and_the_sketchs_figures() -> None:
    at32, at64 = (monolith(PROFILE, crowd(people)) for people in (32, 64))
    assert at64.turns_per_s / at32.turns_per_s == pytest.approx(1.0, abs=0.1)
    assert at64.p50_s / at32.p50_s > 1.8
    assert at64.turns_per_s == pytest.approx(tables.SKETCH_MONOLITH[64], rel=0.1)
    assert at64.busy == pytest.approx(0.81, abs=0.04)


def test_the_knobs_of_the_monolith_give_what_the_sketch_says() -> None:
    for _, found, sketch in tables.knobs(PROFILE, crowd(64)):
        assert found.turns_per_s == pytest.approx(sketch, rel=0.1)


def test_a_faster_device_does_not_make_the_host_faster() -> None:
    slow, fast = monolith(PROFILE, crowd(1)), monolith(PROFILE, crowd(1), speed=4.0)
    assert slow.p50_s - fast.p50_s == pytest.approx(0.75 * (slow.p50_s - 115 * 0.004), rel=0.02)
    assert fast.busy < slow.busy


def test_a_hidden_gap_costs_nothing_while_it_is_shorter_than_the_steps() -> None:
    hidden = monolith(PROFILE, crowd(1), Knobs(gap_hidden=True))
    assert hidden.busy == pytest.approx(1.0, abs=0.01)


def test_an_encoder_pass_stalls_everybody_and_a_cap_shortens_the_stall() -> None:
    gaps = [
        stages(PROFILE, crowd(64, 1.0), Staging(encoder_batch=cap)).gap_p99_s for cap in (1, 2, 3)
    ]
    assert gaps[1] - gaps[0] == pytest.approx(0.008, abs=0.002)
    assert gaps[2] - gaps[1] == pytest.approx(0.008, abs=0.002)


def test_gathering_keeps_passes_and_steps_apart() -> None:
    found, alone = stages(PROFILE, crowd(64), GATHER), monolith(PROFILE, crowd(64))
    assert found.gap_p99_s < alone.gap_p99_s
    assert found.turns_per_s > 2.5 * alone.turns_per_s
    assert found.encoder_members > 7


def test_one_newcomer_a_step_is_too_few() -> None:
    shy = stages(PROFILE, crowd(64), Staging(join_at_once=False))
    assert shy.turns_per_s < 0.7 * stages(PROFILE, crowd(64)).turns_per_s


def test_devices_of_their_own_make_room() -> None:
    shared = stages(PROFILE, crowd(32))
    for apart in (Staging(encoder_apart=True), Staging(speech_apart=True)):
        assert stages(PROFILE, crowd(32), apart).turns_per_s > shared.turns_per_s


def test_first_pieces_first_is_heard_at_once_where_one_rule_makes_everybody_wait() -> None:
    one_rule = monolith(DIFFUSION, crowd(32, 1.0), TUNED)
    staged = stages(DIFFUSION, crowd(32, 1.0), Staging(patience_s=100.0))
    assert staged.ttfa_p95_s < 0.6 * one_rule.ttfa_p95_s
    assert staged.turns_per_s > 0.9 * one_rule.turns_per_s


def test_the_fitted_profile_is_as_idle_as_the_seed_says() -> None:
    fitted = Profile.read(SEED40)
    assert fitted.assumptions
    assert fitted.stages == PROFILE.stages
    assert 0.35 <= monolith(fitted, crowd(64)).busy <= 0.50
    assert with_gap(PROFILE, 1.0).monolith.gap_per_member_ms == 1.0


def test_bisection_finds_the_least_that_is_enough() -> None:
    assert bisect(lambda value: value < 1.25, limit=5.0, tolerance=0.001) == pytest.approx(
        1.25, abs=0.001
    )
