"""What is made of turns and faults; the faults themselves are in tests/server/test_faults.py."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from random import Random
from typing import Any

import pytest

from client.pulse import Pulse
from deploy.errors import BytesUnfit, ServerFailed
from deploy.repositories import read_models
from deploy.settings import REPOSITORIES
from loadtest.chaos import __main__ as chaos
from loadtest.chaos import budgets, hostile, kills, overload, storm
from loadtest.chaos.caller import DOOR, UNTYPED, Told, percentile
from loadtest.chaos.kills import Fault
from loadtest.engine.figures import Found
from python_backends.declared import Declared
from python_backends.errors import InvalidInput, Overloaded, StageError, StageFailed

S = 1_000_000_000


def turn(
    sent_s: float,
    end_s: float,
    error: StageError | None = None,
    chunks_s: Sequence[float] = (),
    **stages_s: tuple[float, float],
) -> Told:
    """One that was answered once."""
    told = Told("t", 7, Pulse("t", 0.0), sent_ns=round(sent_s * S), end_ns=round(end_s * S), ends=1)
    told.error = error
    told.chunks_ns = [round(at * S) for at in chunks_s]
    told.spans = [
        {"stage": stage, "start_ns": round(a * S), "end_ns": round(b * S)}
        for stage, (a, b) in stages_s.items()
    ]
    return told


def hit(stage: str, at_s: float) -> Fault:
    return Fault(stage, round(at_s * S), round((at_s + 4) * S))


def test_a_turn_is_past_a_stage_once_it_has_left_it() -> None:
    one = turn(0, 4, emu_listen=(0, 1), emu_think=(1, 2), emu_speak=(2, 4))
    assert hit("emu_listen", 1.5).was_past(one)
    assert not hit("emu_think", 1.5).was_past(one)
    assert not hit("emu_listen", 5.0).was_past(one)
    lost = turn(0, 4, StageFailed("x"), chunks_s=[2.5])
    assert hit("emu_think", 3.0).was_past(lost)
    assert not hit("emu_think", 2.0).was_past(lost)
    assert not hit("emu_speak", 3.0).was_past(lost)


def test_faults_are_judged_by_every_turn() -> None:
    ended = StageFailed("its process has ended", reason="ended")
    told = [
        turn(0, 2, emu_listen=(0, 1), emu_think=(1, 1.5), emu_speak=(1.5, 2)),
        turn(8, 12, emu_listen=(8, 9), emu_think=(9, 9.5), emu_speak=(9.5, 12)),
        turn(9.5, 10.1, ended),
        turn(9.9, 13, emu_listen=(9.9, 10.5), emu_think=(11, 12), emu_speak=(12, 13)),
        turn(19, 20.7, ended),
        turn(20.5, 22, chunks_s=[21.5]),
        turn(10, 10.2, Overloaded("full", reason="stage")),
    ]
    faults = [hit("emu_think", 10), hit(DOOR, 20)]
    found = kills.figures("x", faults, [(0, 9 * S)], told)
    assert found["x_lost_inside"] == 2
    assert found["x_past_turns"] == 1
    assert found["x_past_answered_share"] == 1
    assert found["x_back_s_max"] == pytest.approx(2.0)
    assert found["x_past_by_quiet_p95"] == pytest.approx(4 / 2)
    assert found["x_door_told_s_max"] == pytest.approx(0.7)
    assert found["x_refused_without_retry"] == 1
    assert found["x_not_answered_once"] == 0


def test_a_stage_that_takes_the_server_along_is_judged_by_the_servers_return() -> None:
    away = StageFailed("nobody answers", reason=kills.UNREACHABLE)
    told = [turn(0, 2), turn(9, 10.2, away), turn(12, 12.1, away), turn(17, 17.1, away)]
    quiet = [(0, 9 * S)]
    found = kills.figures("x", [hit("emu_think", 10)], quiet, told, [(10 * S, 13 * S)])
    assert found["x_back_s_max"] == 0.0
    assert found["x_server_ends"] == 1
    assert found["x_server_back_s_max"] == pytest.approx(3.0)
    assert found["x_unreachable_for_no_reason"] == 1
    assert found["x_untyped_errors"] == 0
    unharmed = kills.figures("x", [hit("emu_think", 10)], quiet, told)
    assert unharmed["x_back_s_max"] == kills.AWAY_S
    assert unharmed["x_server_back_s_max"] is None
    assert unharmed["x_unreachable_for_no_reason"] == 3


def test_a_second_end_or_a_message_behind_it_is_counted() -> None:
    twice, more, alien = turn(0, 1), turn(0, 1), turn(0, 1)
    twice.ends, more.after, alien.heard = 2, 1, ["", "token 8"]
    assert [one.answered_once for one in (twice, more, alien)] == [False, False, True]
    assert [one.is_its_own for one in (twice, more, alien)] == [True, True, False]
    assert turn(0, 1, StageFailed("?", reason=UNTYPED)).outcome == UNTYPED
    assert turn(0, 1, Overloaded("full")).outcome == "OVERLOADED"


def test_a_lone_turn_is_normal_again_when_it_ends_as_quickly_as_before() -> None:
    after = [(0.0, turn(0, 3)), (3.0, turn(0, 0.9)), (3.9, turn(0, 0.8))]
    assert overload._normal_again_s(after, 1.0) == pytest.approx(3.9)
    assert overload._normal_again_s(after, 0.1) == 1000.0
    assert percentile([], 95) == 0.0


def test_plans_of_a_storm_are_the_seeds() -> None:
    drawn = [storm.drawn(random) for random in [Random(1)] for _ in range(400)]
    assert drawn == [storm.drawn(random) for random in [Random(1)] for _ in range(400)]
    leaving = sum(plan.leave_after_s is not None for plan in drawn)
    assert 40 < leaving < 130
    assert any(plan.disconnect for plan in drawn)
    assert any(plan.deadline_ms for plan in drawn)


PORTS: Mapping[str, Sequence[hostile.Port]] = {
    "turn": [hostile.Port("AUDIO", "FP32", (-1,)), hostile.Port("HISTORY", "BYTES", (1,))],
    "prosody": [hostile.Port("TEXT", "BYTES", (1,)), hostile.Port("PIECE", "INT32", (3,))],
}


def test_hostile_requests_are_the_seeds_and_of_every_kind() -> None:
    def some(seed: int) -> list[Any]:
        random = Random(seed)
        return [hostile.drawn(random, PORTS) for _ in range(500)]

    requests = some(4)
    assert [one.SerializeToString(deterministic=True) for one in requests] == [
        one.SerializeToString(deterministic=True) for one in some(4)
    ]
    kinds = {tensor.datatype for one in requests for tensor in one.inputs}
    assert {"FP32", "BYTES", "INT32", "FP16"} <= kinds
    assert any(-1 in tensor.shape for one in requests for tensor in one.inputs)
    assert {one.model_name for one in requests} == PORTS.keys()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("", "ok"),
        ("[tristage code=INVALID_INPUT stage=turn] no", "refused"),
        ("[tristage code=STAGE_FAILED stage=turn] no", "wrong"),
        ("unexpected shape for input 'AUDIO'", "refused"),
        ("Stub process 'turn_0_0' is not healthy.", "wrong"),
        ("Failed to process the request(s) for model: Traceback", "wrong"),
    ],
)
def test_an_answer_to_a_hostile_request_is_right_or_wrong(error: str, kind: str) -> None:
    assert hostile._kind(error) == kind


def test_what_no_error_may_tell_is_found() -> None:
    for text in ("Traceback (most recent", 'File "/work/x", line', "in loop.py", "/root/.cache"):
        assert hostile.SECRETS.search(text)
    assert not hostile.SECRETS.search("[tristage code=INVALID_INPUT stage=turn] AUDIO is missing")


def test_broken_files_are_read_or_refused() -> None:
    found = hostile._files(Random(2))
    assert sum(found.values()) == hostile.FILES
    assert found["untyped"] == 0


def test_figures_are_held_against_what_is_asked() -> None:
    told = chaos.told({"storm_leaks": 0.0, "storm_cross_talk": 2.0}, chaos.CHAOS)
    assert told["met"] == {"storm_cross_talk": False, "storm_leaks": True}
    assert "hostile_crashes" in told["not_measured"]
    assert set(chaos.STEPS) >= {"storm", "kills", "stops", "overload", "hostile", "budgets"}


@pytest.mark.parametrize(
    ("error", "right"),
    [
        (InvalidInput("x", stage="think", reason="bytes"), True),
        (InvalidInput("x", stage="think"), False),
        (InvalidInput("x", stage="turn", reason="bytes"), False),
        (Overloaded("x", stage="think", reason="bytes"), False),
        (None, False),
    ],
)
def test_beyond_its_bytes_a_request_is_refused_by_that_stage_for_good(
    error: StageError | None, right: bool
) -> None:
    assert budgets._is_right("think", error) is right


def test_a_huge_request_takes_just_more_than_its_stage_has() -> None:
    room = Declared(requests=1200, per_input=2)
    for stage in ("encode", "think", "prosody", "acoustic"):
        (raw,) = budgets._huge(stage, room).raw_input_contents
        assert 1200 < 2 * len(raw) < 1240, stage


def test_a_refusal_lacks_what_it_does_not_name() -> None:
    models = read_models(REPOSITORIES, {})

    def refuse() -> None:
        raise BytesUnfit("vad 36 MiB and nothing else")

    assert budgets._refused(refuse, BytesUnfit, ["vad", "voice_turn"], models) == []
    (missing,) = budgets._refused(refuse, BytesUnfit, ["turn", "vad"], models)
    assert missing.startswith("turn ")
    assert budgets._refused(lambda: None, BytesUnfit, ["vad"], models) == ["it was started"]


def test_a_part_that_breaks_off_is_told_and_the_others_are_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class NoStand:
        def dead_turns_at_last(self) -> dict[str, float]:
            return {}

    def dies(random: Random, advance: Any) -> Found:
        raise ServerFailed("no metrics")

    monkeypatch.setattr(chaos, "standing", lambda out: nullcontext(NoStand()))
    monkeypatch.setitem(chaos.REAL, "hostile", dies)
    monkeypatch.setitem(chaos.REAL, "budgets", lambda random, advance: Found({"fine": 1.0}, {}))
    found = chaos._parts(["hostile", "budgets"], 7)
    assert found["parts"].figures == {"parts_broken_off": 1.0}
    assert "no metrics" in found["parts"].detail["hostile"]
    assert found["budgets"].figures == {"fine": 1.0}
