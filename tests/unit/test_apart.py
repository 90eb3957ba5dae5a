"""What `make bench-apart` makes of runs: on runs made up here, so that each figure can fail."""

from dataclasses import replace
from pathlib import Path

from loadtest.apart.__main__ import EXPERIMENTS, TARGETS, result
from loadtest.apart.faults import AWAY_S, Fault
from loadtest.ledger.run import Pass, Run, Turn

S = 1_000_000_000
AT_NS = 10 * S


def turn(start_s: float, end_s: float, reason: str = "", *, heard_s: float | None = None) -> Turn:
    outcome = {"": "ok", "OPEN": "open"}.get(reason, "error")
    if reason.startswith("DEADLINE_MISSED at client"):
        outcome = "timeout"
    chunks = () if heard_s is None else (round(heard_s * S),)
    times = round(start_s * S), round(start_s * S)
    return Turn(
        "t", "0", *times, outcome, reason, chunks, (80.0,) * len(chunks), round(end_s * S), ()
    )


def compute(stage: str, asked_s: float) -> Pass:
    asked_ns = round(asked_s * S)
    return Pass("shared", stage, 1, asked_ns, asked_ns, asked_ns + 10_000_000)


def fault(*turns: Turn, passes: tuple[Pass, ...] = ()) -> Fault:
    return Fault(Run(Path(), {"name": "run"}, turns, passes, ()), AT_NS)


def test_a_fault_is_noticed_when_the_last_of_those_it_hit_is_told() -> None:
    hit = [turn(9, 10.1, "STAGE_FAILED at emu_think"), turn(9, 12.5, "STAGE_FAILED at emu_think")]
    others = [
        turn(1, 9, "STAGE_FAILED at emu_think"),
        turn(9, 11),
        turn(11, 11.1, "OVERLOADED at x"),
    ]
    found = fault(*hit, *others)
    assert found.hit == hit
    assert found.noticed_s == 2.5


def test_a_time_out_and_words_of_the_servers_own_are_not_typed() -> None:
    typed = turn(9, 10.1, "STAGE_FAILED at emu_think")
    assert fault(typed, turn(9, 11), turn(9, 11, "OPEN")).untyped == 0
    assert fault(typed, turn(9, 16, "DEADLINE_MISSED at client")).untyped == 1
    assert fault(typed, turn(9, 10, "STAGE_FAILED at server")).untyped == 1


def test_those_who_were_being_spoken_are_to_be_answered() -> None:
    thinking = turn(9, 10.1, "STAGE_FAILED at emu_think")
    assert fault(thinking).beyond == []
    well, ill = turn(8, 11, heard_s=9.5), turn(8, 11, "STAGE_FAILED at emu_speak", heard_s=9.5)
    assert fault(thinking, well).served_on_share == 1.0
    assert fault(thinking, well, ill).served_on_share == 0.5


def test_a_stage_is_back_with_its_first_pass_and_the_encoder_goes_on_meanwhile() -> None:
    passes = (
        compute("think", 9.9),
        compute("listen", 10.5),
        compute("listen", 11.5),
        compute("think", 12),
        compute("listen", 13),
    )
    found = fault(passes=passes)
    assert (found.back_s, found.listened_meanwhile) == (2.0, 2)
    assert fault(passes=passes[:1]).back_s == AWAY_S


def test_what_was_not_measured_is_said_and_an_unmet_target_is_unmet() -> None:
    summary = dict.fromkeys(TARGETS, 1.0) | {"killed_untyped_failures": 2.0}
    found = result(summary)
    assert found["not_measured"] == []
    assert found["met"]["killed_untyped_failures"] is False
    del summary["same_answers"]
    assert result(summary)["not_measured"] == ["same_answers"]
    assert list(EXPERIMENTS) == [
        "together",
        "scaled",
        "broken",
        "drained",
        "transferred",
        "hosts",
    ]


def test_a_turn_that_the_end_of_the_run_cut_short_is_no_failure() -> None:
    cut = replace(turn(9, 12, "STAGE_FAILED at emu_think"), outcome="open", reason="")
    assert fault(cut).hit == []
    assert fault(cut).untyped == 0
