from typing import Any

import pytest

from loadtest.load.punctuality import judge, limit_ms, percentile
from loadtest.load.records import Turn, outcome_of
from loadtest.load.summary import Summary
from python_backends.errors import (
    Cancelled,
    DeadlineMissed,
    InvalidInput,
    Overloaded,
    StageError,
    StageFailed,
)

S = 1_000_000_000
FACTS: dict[str, Any] = {
    "name": "a",
    "emulated": True,
    "measured_from_ns": 10 * S,
    "measured_to_ns": 20 * S,
    "generator": {"valid": True, "why": ""},
}


def answered(start_s: float, total_s: float, **changes: Any) -> Turn:
    start_ns, end_ns = round(start_s * S), round((start_s + total_s) * S)
    turn = Turn(f"{start_s}", 0, start_ns, start_ns, 10 <= start_s < 20)
    turn.chunks_ns, turn.chunk_audio_ms = [start_ns + S // 2, end_ns], [1000.0, 1000.0]
    turn.end_ns = end_ns
    turn.succeed()
    for name, value in changes.items():
        setattr(turn, name, value)
    return turn


def refused(start_s: float) -> Turn:
    turn = Turn(f"r{start_s}", 0, round(start_s * S), round(start_s * S), 10 <= start_s < 20)
    turn.fail(Overloaded("no room", stage="think"), late=False)
    turn.end_ns = turn.sent_ns + 1_000_000
    return turn


def test_fast_failures_do_not_improve_the_percentiles() -> None:
    """Public case L5."""
    turns = [answered(10 + at / 10, 2.0 + at / 100) for at in range(40)]
    alone = Summary.of(FACTS, turns)
    beside = Summary.of(FACTS, turns + [refused(10 + at / 10) for at in range(10)])
    assert beside.total_s == alone.total_s
    assert beside.first_audio_s == alone.first_audio_s
    assert beside.failures == {"refused: OVERLOADED at think": 10}
    assert (beside.counted, beside.answered) == (50, 40)


def test_first_audio_and_the_whole_answer_are_both_told() -> None:
    """Public case L4."""
    summary = Summary.of(FACTS, [answered(12, 2.0)])
    assert summary.first_audio_s[0.5] == 0.5
    assert summary.total_s[0.5] == 2.0


def test_real_time_is_measured_against_the_sound_that_came() -> None:
    """Public case L9."""
    assert Summary.of(FACTS, [answered(12, 3.0)]).rtf[0.5] == 1.5


def test_a_chunk_without_sound_is_no_first_audio() -> None:
    assert answered(0, 2.0, chunk_audio_ms=[0.0, 10.0]).first_audio_ns == 2 * S
    assert answered(0, 2.0, chunk_audio_ms=[0.0, 0.0]).first_audio_ns is None


def test_a_turn_sent_late_waits_from_when_it_was_meant_to_start() -> None:
    late = answered(12, 2.0, sent_ns=13 * S)
    assert Summary.of(FACTS, [late]).total_s[0.5] == 2.0


def test_turns_of_the_warm_up_are_no_latencies_but_end_in_the_throughput() -> None:
    summary = Summary.of(FACTS, [answered(9, 2.0), answered(12, 4.0), answered(19, 3.0)])
    assert summary.counted == 2
    assert summary.total_s[0.5] == 3.0
    assert summary.per_s == 0.2


def test_turns_open_at_the_end_are_counted_apart() -> None:
    cut = answered(20, 1.0)
    cut.leave_open()
    summary = Summary.of(FACTS, [cut])
    assert (summary.counted, summary.open_at_end, dict(summary.failures)) == (0, 1, {})


@pytest.mark.parametrize(
    ("error", "late", "outcome"),
    [
        (DeadlineMissed("", stage="client"), True, "timeout"),
        (DeadlineMissed("", stage="think"), False, "refused"),
        (Overloaded("", stage="listen"), False, "refused"),
        (Cancelled("", stage="think"), True, "timeout"),
        (Cancelled("", stage="think"), False, "error"),
        (InvalidInput(""), False, "error"),
        (StageFailed(""), True, "error"),
    ],
)
def test_only_the_caller_times_out(error: StageError, late: bool, outcome: str) -> None:
    assert outcome_of(error, late=late) == outcome


def test_percentiles_are_values_that_occurred() -> None:
    assert percentile([5, 1, 3, 2, 4], 0.5) == 3
    assert percentile([1, 2], 0.5) == 1
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([7], 0.99) == 7


def test_the_limit_is_20_ms_or_5_percent_of_a_longer_gap() -> None:
    assert limit_ms(None) == 20
    assert limit_ms(50) == 20
    assert limit_ms(1000) == 50


def test_a_punctual_generator_is_valid() -> None:
    verdict = judge([1.0] * 100, [2.0] * 100, 20.0)
    assert (verdict.valid, verdict.why) == (True, "")


@pytest.mark.parametrize(
    ("sends", "beats", "why"),
    [
        ([1.0] * 90 + [50.0] * 10, [1.0] * 100, "requests left 50.0 ms late"),
        ([1.0] * 100, [1.0] * 90 + [30.0] * 10, "heartbeats woke 30.0 ms late"),
        ([], [1.0] * 100, "no turn was sent"),
    ],
)
def test_a_late_generator_is_invalid_and_says_why(
    sends: list[float], beats: list[float], why: str
) -> None:
    verdict = judge(sends, beats, 20.0)
    assert not verdict.valid
    assert why in verdict.why
