"""Three curves in one emulated memory: who takes what, who fails, how much each plan lets in."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.device import Profile
from loadtest.memory.__main__ import main, told
from loadtest.memory.experiment import (
    RUNS,
    TARGETS,
    Outcome,
    Setting,
    experiment,
    longer,
    lowest_ratio,
    summary,
    usual,
)
from loadtest.memory.memory import Memory
from loadtest.memory.plans import (
    Budgeted,
    Counted,
    average_turns,
    budgets,
    by_budgets,
    counted,
    own_peak_turns,
    peak_turns,
)
from loadtest.memory.sizes import FUSED, SIZES, Length, Lengths, Sizes, attended
from loadtest.memory.world import CURVES, LISTEN, SPEAK, THINK, TURN, Gate, Turn, World
from loadtest.sim.costs import Costs
from python_backends.scheduling.bytes import ByteBudget, OverBudget

COSTS = Costs(Profile.named("profile"))
SMALL = Sizes(device=1000, encoder_member=30, token=1, speech=20)
SHORT = Lengths(prompt=(10, 20), answer=(2, 10))
TURN_OF_10 = Turn(Length(prompt=10, answer=4, speech=8))


def world(
    gate: Gate, lengths: Lengths = SHORT, total: float = math.inf, *, sampled: bool = False
) -> World:
    memory = Memory(total, CURVES, samples=[] if sampled else None)
    return World(COSTS, SMALL, lengths, gate, memory, seed=1)


def fixed(prompt: int, answer: int) -> Lengths:
    return Lengths(prompt=(prompt, prompt), answer=(answer, answer))


class TestMemory:
    def test_whoever_asks_for_too_much_gets_nothing(self) -> None:
        memory = Memory(100, CURVES)
        assert memory.take(THINK, 60)
        assert not memory.take(LISTEN, 41)
        assert memory.take(LISTEN, 40)
        assert memory.used == {LISTEN: 40, THINK: 60, SPEAK: 0}

    def test_the_mean_is_over_the_time_that_is_measured(self) -> None:
        memory = Memory(100, CURVES)
        memory.take(SPEAK, 80)
        memory.pass_time(5.0)
        memory.begin_measuring()
        memory.pass_time(6.0)
        memory.give_back(SPEAK, 60)
        memory.pass_time(9.0)
        assert memory.mean == pytest.approx((80 + 3 * 20) / 4)
        assert (memory.measured_s, memory.peak) == (4.0, 80)

    def test_every_change_is_kept_from_when_the_measuring_began(self) -> None:
        memory = Memory(100, CURVES, samples=[])
        memory.take(SPEAK, 80)
        memory.pass_time(5.0)
        memory.begin_measuring()
        memory.give_back(SPEAK, 60)
        assert memory.samples == [(5.0, (0, 0, 80)), (5.0, (0, 0, 20))]


class TestOneTurn:
    def test_it_takes_the_time_of_its_passes(self) -> None:
        one = world(Counted(1), fixed(10, 4))
        one.run(people=1, warm_up=0, turns=1)
        steps = {name: COSTS.pass_s(name, 1) for name in CURVES}
        expected = 0.002 + steps[LISTEN] + 4 * steps[THINK] + 8 * steps[SPEAK]
        assert one.now == pytest.approx(expected)

    def test_its_curves_are_a_spike_a_slope_and_a_constant(self) -> None:
        one = world(Counted(1), fixed(10, 4), sampled=True)
        one.run(people=1, warm_up=0, turns=1)
        listen, think, speak = zip(*(used for _, used in one.memory.samples or []), strict=True)
        assert [n for n, _ in groupby(listen)] == [0, 30, 0]
        assert [n for n, _ in groupby(think)] == [0, 10, 11, 12, 13, 14, 0]
        assert [n for n, _ in groupby(speak)] == [0, 20, 0]
        assert one.memory.in_use == 0

    def test_speech_is_as_long_as_the_answer(self) -> None:
        lengths = Lengths.of(COSTS.profile)
        drawn = [lengths.draw(Random(seed)) for seed in range(200)]
        assert all(one.speech == round(one.answer * 75 / 40) for one in drawn)
        assert all(300 <= one.prompt <= 700 and 16 <= one.answer <= 64 for one in drawn)
        assert max(one.prompt + one.answer for one in drawn) <= lengths.longest_kv


class TestOutOfMemory:
    def test_a_pass_that_finds_no_room_fails_all_its_members(self) -> None:
        here = world(Counted(3), fixed(10, 4), total=89)
        here.run(people=3, warm_up=0, turns=3)
        assert [stage for _, stage in here.ooms] == [LISTEN]
        assert (here.failed, here.answered, here.memory.in_use) == (3, 0, 0)

    def test_a_turn_that_grows_fails_alone_and_leaves_its_room_to_the_others(self) -> None:
        here = world(Counted(2), fixed(100, 4), total=205)
        here.run(people=2, warm_up=0, turns=2)
        assert [stage for _, stage in here.ooms] == [THINK]
        assert (here.failed, here.answered) == (1, 1)

    def test_a_turn_that_cannot_join_fails(self) -> None:
        here = world(Counted(2), fixed(100, 4), total=199)
        here.run(people=2, warm_up=0, turns=1)
        assert [stage for _, stage in here.ooms] == [THINK]
        assert (here.failed, here.answered, here.think.running) == (1, 0, 1)

    def test_who_failed_says_it_again(self) -> None:
        here = world(Counted(3), fixed(10, 4), total=89)
        here.run(people=3, warm_up=0, turns=30)
        assert here.failed == 30
        assert here.now > 0


@settings(max_examples=30, deadline=None)
@given(device=st.integers(300, 2000), most=st.integers(1, 60), seed=st.integers(0, 99))
def test_bytes_are_those_of_who_is_there(device: int, most: int, seed: int) -> None:
    memory = Memory(device, CURVES)
    here = World(COSTS, SMALL, SHORT, Counted(most), memory, seed)
    here.run(people=40, warm_up=0, turns=150)
    assert memory.peak <= device
    assert memory.used[SPEAK] == SMALL.speech * here.speak.running
    running = here.think.running
    assert SHORT.prompt[0] * running <= memory.used[THINK] <= SHORT.longest_kv * running
    assert here.turns >= 150


class Watched(Memory):
    """Looks after every change whether a stage has more than it reserved."""

    gate: Budgeted

    def _changed(self) -> None:
        super()._changed()
        reserved = self.gate.budget.usage()
        assert all(self.used[stage] <= reserved[stage].used for stage in CURVES)
        self.gate.budget.check_integrity()


@settings(max_examples=30, deadline=None)
@given(device=st.integers(400, 3000), seed=st.integers(0, 99))
def test_nobody_has_more_than_was_reserved_and_so_nobody_fails(device: int, seed: int) -> None:
    sizes = replace(SMALL, device=device)
    gate = by_budgets(COSTS, sizes, SHORT).gate()
    assert isinstance(gate, Budgeted)
    memory = Watched(device, CURVES)
    memory.gate = gate
    here = World(COSTS, sizes, SHORT, gate, memory, seed)
    here.run(people=40, warm_up=0, turns=150)
    assert (here.failed, here.answered >= 150) == (0, True)
    reserved = gate.budget.usage()
    assert reserved[SPEAK].used == sizes.speech * here.speak.running
    assert reserved[LISTEN].used == 0


def test_budgets_that_reserve_too_little_do_run_out() -> None:
    """No failure is not for want of a way to fail."""
    budget = ByteBudget(433, {LISTEN: 90, THINK: 303, SPEAK: 40})
    here = world(Budgeted(budget, SMALL, fixed(100, 1)), fixed(100, 60), total=budget.total)
    here.run(people=3, warm_up=0, turns=40)
    assert THINK in {stage for _, stage in here.ooms}
    budget.check_integrity()


class TestPlans:
    @given(device=st.integers(4 * 10**8, 10**11))
    def test_by_peak_is_the_most_that_fit_with_everybody_at_the_peak(self, device: int) -> None:
        sizes, lengths = replace(SIZES, device=device), Lengths.of(COSTS.profile)
        most = peak_turns(COSTS, sizes, lengths)

        def at_peak(turns: int) -> int:
            rows = lengths.longest_kv * sizes.token + sizes.speech
            return min(turns, 8) * sizes.encoder_member + turns * rows

        assert at_peak(most) <= device < at_peak(most + 1)
        assert most <= own_peak_turns(COSTS, sizes, lengths)

    def test_by_average_is_the_most_whose_mean_fits(self) -> None:
        most = average_turns(COSTS, SMALL, SHORT, people=80)
        means = []
        for turns in (most, most + 1):
            here = world(Counted(turns))
            here.run(people=80, warm_up=1000, turns=2000)
            means.append(here.memory.mean)
        assert 1 < most < 80
        assert means[0] == pytest.approx(SMALL.device, rel=0.05)
        assert means[0] < means[1]

    def test_who_leaves_a_margin_lets_in_fewer(self) -> None:
        shares = (1.0, 0.8, 0.5)
        most = [average_turns(COSTS, SMALL, SHORT, 80, share) for share in shares]
        assert most == sorted(most, reverse=True)
        assert most[0] > most[-1]

    def test_budgets_are_all_of_the_memory_and_one_full_pass(self) -> None:
        declared = budgets(COSTS, SIZES, Lengths.of(COSTS.profile))
        assert sum(declared.values()) == SIZES.device
        assert declared[LISTEN] == 8 * SIZES.encoder_member
        ByteBudget(SIZES.device, declared).check_integrity()

    def test_a_count_asks_at_the_beginning_alone(self) -> None:
        gate = Counted(1)
        assert gate.admit(TURN, TURN_OF_10)
        assert not gate.admit(TURN, TURN_OF_10)
        assert all(gate.admit(stage, TURN_OF_10) for stage in CURVES)
        for stage in CURVES:
            gate.leave(stage, TURN_OF_10)
        assert not gate.admit(TURN, TURN_OF_10)
        gate.leave(TURN, TURN_OF_10)
        assert gate.admit(TURN, TURN_OF_10)

    def test_a_stage_waits_for_its_own_bytes_alone(self) -> None:
        gate = Budgeted(ByteBudget(100, {LISTEN: 30, THINK: 25, SPEAK: 40}), SMALL, SHORT)
        assert gate.admit(THINK, TURN_OF_10)
        assert gate.budget.free(THINK) == 25 - (10 + 10)
        assert not gate.admit(THINK, TURN_OF_10)
        assert [gate.admit(stage, TURN_OF_10) for stage in (TURN, LISTEN, SPEAK)] == [True] * 3
        gate.leave(THINK, TURN_OF_10)
        assert gate.admit(THINK, TURN_OF_10)

    def test_a_turn_that_never_fits_does_not_wait_for_ever(self) -> None:
        gate = Budgeted(ByteBudget(100, {LISTEN: 30, THINK: 19, SPEAK: 40}), SMALL, SHORT)
        with pytest.raises(OverBudget):
            gate.admit(THINK, TURN_OF_10)


def test_the_sizes_are_what_their_formulas_say() -> None:
    assert attended(positions=2, width=3, heads=1, arrays=2) == 2 * (2 * 4 + 2 * 6)
    assert [round(n / 1e6) for n in (SIZES.encoder_member, SIZES.speech)] == [199, 103]
    assert [round(n / 1e6) for n in (FUSED.encoder_member, FUSED.speech)] == [35, 31]
    assert SIZES.token == 128 * 1024
    assert round(SIZES.device / 1e9, 1) == 14.3


def outcome(turns_per_s: float = 10.0, failed: int = 0, ooms: Sequence[str] = ()) -> Outcome:
    return Outcome(
        turns=200,
        turns_per_s=turns_per_s,
        wasted_share=0.25,
        peak_share=0.9,
        ooms={stage: ooms.count(stage) for stage in ooms},
        failed=failed,
        members=4.0,
        samples=[],
        oom_times_s=[],
    )


def test_counts_are_told_for_ten_thousand_turns() -> None:
    found = summary([outcome(8.0), outcome(12.0, failed=9, ooms=[LISTEN, LISTEN, THINK])])
    assert found == {
        "wasted_share": 0.25,
        "ooms_per_10000_turns": 75.0,
        "failed_per_10000_turns": 225.0,
        "turns_per_s": 10.0,
    }


def test_a_ratio_is_that_of_the_worst_seed() -> None:
    assert lowest_ratio([outcome(20.0), outcome(12.0)], [outcome(10.0), outcome(8.0)]) == 1.5


def test_a_seed_gives_the_same_run_again_and_another_does_not() -> None:
    setting = Setting(COSTS, SMALL, SHORT, SHORT, people=40)
    plan = counted("some", 20)
    first, again, other = (setting.play(plan, seed, turns=300) for seed in (1, 1, 2))
    assert first == again
    assert first.turns_per_s != other.turns_per_s


def test_longer_turns_are_still_allowed_and_plans_are_made_for_the_usual_ones() -> None:
    setting = usual()
    long = longer(setting)
    assert long.planned == setting.planned
    assert long.come.longest_kv == setting.planned.longest_kv
    assert long.come.prompt[0] == setting.planned.prompt[1]


def test_every_target_has_its_figure_and_can_be_missed() -> None:
    counts: list[int] = []
    found = experiment(usual(), [0], 300, lambda: counts.append(1))
    assert len(counts) == RUNS
    met = told(found, TARGETS)["met"]
    assert not met["turns_each"]
    none = replace(found, figures=dict.fromkeys(found.figures, 0.0))
    assert not told(none, TARGETS)["met"]["average_ooms_per_10000_turns"]
    worse = replace(found, figures=dict.fromkeys(found.figures, 1.0))
    assert not any(value for key, value in told(worse, TARGETS)["met"].items() if "budgets" in key)


def test_the_command_writes_figures_and_a_picture(tmp_path: Path) -> None:
    assert main(["--turns", "200", "--seeds", "1", "--out", str(tmp_path)]) == 1
    written = json.loads((tmp_path / "memory.json").read_text())
    assert written["emulated"]
    assert written["met"].keys() == TARGETS.keys() <= written["summary"].keys()
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")
