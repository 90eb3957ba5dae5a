"""Rulers, each against a turn that is easy to measure by eye."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadtest.ledger.phases import Lanes
from loadtest.ledger.run import Run, Turn
from loadtest.rulers import (
    Slo,
    Spread,
    Underrun,
    chunk_gaps_ms,
    first_audio_ms,
    is_good,
    latency_ms,
    real_time_factor,
    rulers,
    underrun,
    whole_sentence_ms,
)
from tests.unit.ledger_simulator import simulate
from tests.unit.ledger_world import MS, Knobs


def turn(*arrivals_ms: float, audio_ms: float = 320.0, late_ms: float = 0.0, **more: Any) -> Turn:
    """Sent at 1000 ms; a chunk arrives at each of the moments after that."""
    made = Turn(
        turn="t",
        user="0",
        intended_ns=round((1000 - late_ms) * MS),
        sent_ns=1000 * MS,
        outcome="ok",
        reason="",
        chunks_ns=tuple(round((1000 + at) * MS) for at in arrivals_ms),
        chunk_audio_ms=(320.0,) * len(arrivals_ms),
        end_ns=round((1000 + arrivals_ms[-1]) * MS),
        spans=(),
    )
    return replace(made, **more)


def test_first_audio_counts_from_sending_and_from_the_intended_sending() -> None:
    one = turn(500, 700, late_ms=40.0)
    assert first_audio_ms(one) == 500.0
    assert first_audio_ms(one, intended=True) == 540.0
    assert latency_ms(one) == 700.0


def test_a_chunk_without_sound_is_not_first_audio() -> None:
    one = replace(turn(100, 500, 700), chunk_audio_ms=(0.0, 320.0, 320.0))
    assert first_audio_ms(one) == 500.0
    assert chunk_gaps_ms(one) == [200.0]


def test_a_good_rtf_says_nothing_about_the_first_sound() -> None:
    """The whole answer is gathered before any of it is heard: same RTF, late first audio."""
    streamed = turn(*range(500, 2500, 100))
    gathered = replace(streamed, chunks_ns=(streamed.end_ns,) * 20)
    assert real_time_factor(streamed) == real_time_factor(gathered) == pytest.approx(2.4 / 6.4)
    assert first_audio_ms(streamed) == 500.0
    assert whole_sentence_ms(streamed) == first_audio_ms(gathered) == 2400.0


def test_chunks_that_arrive_in_time_leave_no_silence() -> None:
    assert underrun(turn(500, 820, 1140)) == Underrun(0, 0.0)
    assert underrun(turn(500, 510, 520, 1400)) == Underrun(0, 0.0)


def test_a_late_chunk_leaves_a_silence_and_playback_never_catches_up() -> None:
    assert underrun(turn(500, 900, 1300)) == Underrun(2, 160.0)
    assert underrun(turn(500, 900, 1219)) == Underrun(1, 80.0)


def test_a_good_turn_is_heard_in_time_and_without_a_noticed_silence() -> None:
    slo = Slo(first_audio_ms=600.0, stalled_ms=50.0)
    assert is_good(turn(500, 820), slo)
    assert not is_good(turn(500, 820, late_ms=200.0), slo)
    assert not is_good(turn(500, 900), slo)
    assert not is_good(turn(500, 820, outcome="timeout"), slo)


def test_a_spread_of_nothing_has_no_figures() -> None:
    assert Spread.of([]) == Spread(0)
    assert Spread.of(range(1, 101)).p50 == 50.5


def test_percentiles_are_of_successes_and_stand_beside_the_failures(tmp_path: Path) -> None:
    simulate(Knobs(people=4), tmp_path)
    run = Run.read(tmp_path)
    bad = replace(
        run.turns[0], turn="bad", outcome="timeout", reason="6 s", end_ns=run.window[0] + 1
    )
    run = replace(run, turns=(bad, *run.turns))
    found = rulers(run, Lanes(run))
    assert found.failures == {"timeout: 6 s": 1}
    assert found.turns == found.answered + 1
    assert found.latency.n == found.answered
    assert found.turns_per_s == found.answered / 4.0


def test_turns_still_open_at_the_end_are_neither_successes_nor_failures(tmp_path: Path) -> None:
    simulate(Knobs(people=4), tmp_path)
    run = Run.read(tmp_path)
    assert [turn.outcome for turn in run.turns].count("open") == 4
    assert rulers(run, Lanes(run)).failures == {}


def test_an_open_loop_counts_turns_by_their_intended_time(tmp_path: Path) -> None:
    simulate(Knobs(people=4), tmp_path)
    run = Run.read(tmp_path)
    facts = dict(run.facts) | {"mode": "open", "measured_from_ns": run.window[0] + 1}
    first = run.turns[0]
    assert first in run.measured
    assert first not in replace(run, facts=facts).measured


def test_a_step_gap_holds_the_step_and_every_stall_before_it(tmp_path: Path) -> None:
    """Alone, think steps end 8.65 ms apart, and with a gap of 5 ms that much later."""
    for gap in (0.0, 5.0):
        simulate(Knobs(people=1, gap=gap), tmp_path)
        run = Run.read(tmp_path)
        steps = rulers(run, Lanes(run)).step_gaps
        assert steps["think"].every.p50 == pytest.approx(8.65 + gap)
        assert steps["think"].longest.p99 == pytest.approx(8.65 + gap)
        assert steps["think"].every.n == 39 * len(run.answered)
        assert steps["speak"].every.p99 == pytest.approx(4.74 + gap)


def test_an_encoder_pass_is_the_longest_step_gap_of_those_who_run(tmp_path: Path) -> None:
    """86 ms of encoder for 8 people, and the steps of both loops in the same queue."""
    simulate(Knobs(people=64), tmp_path)
    run = Run.read(tmp_path)
    longest = rulers(run, Lanes(run)).step_gaps["think"].longest
    assert longest.longest is not None
    assert 95.0 < longest.longest < 110.0
