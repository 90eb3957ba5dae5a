"""The model `acoustic`: order of a turn, failures, cancels, refusals."""

import threading
from pathlib import Path

import numpy as np
import pytest

from python_backends.speech import CHANNELS
from tests.fakes import (
    MODELS,
    InferenceRequest,
    InferenceResponse,
    InferenceResponseSender,
    answer,
)
from tests.unit.acoustic_stage import (
    DEAF_PHONEME,
    LAST,
    NAN_PHONEME,
    REFUSED_PHONEME,
    FakeFlow,
    Stage,
    Turnstile,
    latents,
    locked,
    places,
    stage,
)

__all__ = ["locked", "stage"]

EMPTY_PHONEME = 104


def test_pieces_of_a_turn_leave_in_order(stage: Stage) -> None:
    third = stage.send(30, piece=(2, LAST), turn="t")
    second = stage.send(piece=(1, 4), turn="t")
    stage.settle()
    assert not third.ended.is_set()
    assert not second.ended.is_set()
    first = stage.send(150, piece=(0, 0), turn="t")
    assert places(first)[-1] == [0, 2, 1]
    assert places(second) == [[1, 0, 4 | 1]]
    assert places(third) == [[2, 0, LAST | 1]]


def test_a_piece_whose_forerunner_never_comes_is_given_up(stage: Stage) -> None:
    orphan = stage.send(piece=(3, LAST), turn="t")
    assert "code=INVALID_INPUT stage=acoustic turn=t]" in orphan.error()
    assert "has not come" in orphan.error()


def test_a_piece_given_twice_is_refused_and_the_turn_goes_on(stage: Stage) -> None:
    stage.hold(piece=(0, 0), turn="t")
    twin = stage.send(piece=(0, 0), turn="t")
    assert "piece 0 of the turn has been given before" in twin.error()
    stage.flow.open.set()
    assert stage.send(piece=(1, LAST), turn="t").error() == ""


def test_a_turn_id_may_be_used_again_after_an_unfinished_turn(stage: Stage) -> None:
    assert stage.send(piece=(0, 0), turn="1").error() == ""
    assert stage.send(piece=(0, 0), turn="1").error() == ""
    assert stage.send(piece=(1, LAST), turn="1").error() == ""


def test_two_whole_turns_of_one_id_do_not_disturb_each_other(stage: Stage) -> None:
    """Public case C15."""
    stage.hold()
    pair = [stage.send(40, piece=(0, LAST), turn="1", seed=seed) for seed in (1, 2)]
    stage.settle()
    stage.flow.open.set()
    one, two = (latents(sender) for sender in pair)
    assert (one != two).any()


@pytest.mark.parametrize(
    ("phoneme", "message"),
    [
        (NAN_PHONEME, "not finite"),
        (DEAF_PHONEME, "without content"),
        (REFUSED_PHONEME, "index out of range"),
    ],
)
def test_a_bad_member_fails_alone_and_is_never_silent(
    stage: Stage, phoneme: int, message: str
) -> None:
    """Public case I1."""
    stage.hold()
    good = [stage.send(40, seed=k) for k in range(3)]
    bad = stage.send(inputs={"PROSODY": np.array([[[phoneme, 40, 3]]], np.int32)})
    stage.settle()
    stage.flow.open.set()
    assert "code=STAGE_FAILED" in bad.error()
    assert message in bad.error()
    assert all(sender.error() == "" for sender in good)
    alone = latents(stage.send(40, seed=1))
    assert np.abs(latents(good[1]) - alone).max() < 1e-6


def test_a_decoder_that_gives_no_frames_fails_that_piece_alone(stage: Stage) -> None:
    """Public cases D4 and H9."""

    def without_frames(request: InferenceRequest) -> InferenceResponse:
        given = request.values()
        if (np.round(given["CONDITION"]) == EMPTY_PHONEME).any():
            return answer(VELOCITY=np.zeros((len(given["X"]), 0, CHANNELS), np.float32))
        return stage.flow.step(request)

    MODELS["acoustic_step"] = without_frames
    stage.hold()
    good = [stage.send(40, seed=k) for k in range(3)]
    bad = stage.send(40, phoneme=EMPTY_PHONEME)
    stage.settle()
    stage.flow.open.set()
    assert "code=STAGE_FAILED" in bad.error()
    assert "answered VELOCITY [1, 0, 66]" in bad.error()
    assert all(sender.error() == "" for sender in good)
    assert stage.send(40).error() == ""


def test_a_failed_piece_takes_its_turn_along_and_nobody_else(stage: Stage) -> None:
    stage.hold()
    first = stage.send(40, piece=(0, 0), turn="t", phoneme=NAN_PHONEME)
    second = stage.send(40, piece=(1, 0), turn="t")
    stranger = stage.send(40, turn="other")
    stage.settle()
    stage.flow.open.set()
    assert "not finite" in first.error()
    assert "code=CANCELLED" in second.error()
    assert stranger.error() == ""
    assert "code=CANCELLED" in stage.send(piece=(2, LAST), turn="t").error()


def test_too_long_a_piece_is_refused_in_seconds_and_its_turn_ends(stage: Stage) -> None:
    """Public case H8."""
    stage.hold()
    waiting = stage.send(40, piece=(0, 0), turn="t")
    long = stage.send(1601, piece=(1, LAST), turn="t")
    assert "lasts 20.01 s; a piece of more than 0 and at most 20 s" in long.error()
    assert "code=CANCELLED" in waiting.error()


def test_a_cancelled_turn_that_waits_or_is_held_is_answered_at_once(stage: Stage) -> None:
    stage.hold()
    waiting = stage.send(40, piece=(0, 0), turn="t")
    held = stage.send(piece=(1, LAST | 4), turn="t")
    stage.settle()
    stage.cancel("t")
    assert "code=CANCELLED" in waiting.error()
    assert "code=CANCELLED" in held.error()
    assert len(stage.flow.conditions) == 1


def test_a_batch_that_nobody_waits_for_stops_and_its_requests_stay_open_till_then(
    stage: Stage,
) -> None:
    """An exec without an open request would take the server down at unload."""
    holder = stage.hold()
    stage.cancel("holder")
    stage.settle()
    assert not holder.ended.is_set()
    stage.flow.open.set()
    assert "code=CANCELLED" in holder.error()
    assert stage.flow.steps == []


@pytest.mark.parametrize("step", [0, 2, 3])
def test_one_cancelled_member_of_a_locked_batch_is_left_out_of_the_answers(
    locked: Stage, step: int
) -> None:
    locked.hold()
    doomed, other = locked.send(40, turn="doomed"), locked.send(40, turn="other")
    locked.settle()
    gate = Turnstile(locked.flow, 4 + step)
    locked.flow.open.set()
    gate.wait()
    locked.cancel("doomed")
    locked.settle()
    assert not doomed.ended.is_set()
    gate.go.set()
    assert "code=CANCELLED" in doomed.error()
    assert len(doomed.values()) == 1
    assert other.error() == ""
    assert [shape[0] for shape in locked.flow.steps[4:]] == [2] * 4


def test_a_batch_whose_members_are_all_cancelled_ends_before_its_next_step(stage: Stage) -> None:
    stage.hold(steps=1)
    senders = [stage.send(40, turn=f"t{n}") for n in range(3)]
    stage.settle()
    gate = Turnstile(stage.flow, 2)
    stage.flow.open.set()
    gate.wait()
    for n in range(3):
        stage.cancel(f"t{n}")
    stage.settle()
    gate.go.set()
    assert all("code=CANCELLED" in sender.error() for sender in senders)
    assert [shape[0] for shape in stage.flow.steps[1:]] == [3] * 2
    assert len(stage.flow.conditions) == 2, "nobody is tried alone"


def test_a_caller_who_has_left_is_dropped_before_the_batch_starts(stage: Stage) -> None:
    stage.hold()
    gone, here = stage.send(40, turn="gone"), stage.send(40, turn="here")
    stage.settle()
    gone.cancelled = True
    stage.flow.open.set()
    assert "code=CANCELLED" in gone.error()
    assert here.error() == ""
    assert stage.flow.lengths[-1] == [40]


def test_more_than_max_waiting_pieces_are_refused_with_a_time_to_come_back(stage: Stage) -> None:
    stage.hold()
    accepted = [stage.send(24) for _ in range(11)]
    refused = stage.send(24).error()
    assert "code=OVERLOADED" in refused
    assert "retry_after_ms=" in refused
    stage.flow.open.set()
    assert all(sender.error() == "" for sender in accepted)


def test_a_crash_of_the_step_call_answers_everybody_and_the_stage_goes_on(stage: Stage) -> None:
    stage.hold()
    waiting = stage.send(40, turn="waiting")
    stage.settle()
    MODELS.pop("acoustic_step")
    stage.flow.open.set()
    assert "code=STAGE_FAILED" in waiting.error()
    MODELS["acoustic_step"] = stage.flow.step
    assert stage.send(40).error() == ""


def test_unloading_ends_every_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    stage = Stage(tmp_path, FakeFlow())
    stage.send(40).wait()
    stage.model.finalize()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("bad", [(-1, 2), (0, -1)])
def test_a_negative_piece_is_refused(stage: Stage, bad: tuple[int, int]) -> None:
    assert "nothing of it is negative" in stage.send(piece=bad).error()


def test_random_traffic_of_many_turns_ends_every_request_once_and_in_order(stage: Stage) -> None:
    rng = np.random.default_rng(11)
    for round_ in range(15):
        pieces: list[tuple[str, int, InferenceResponseSender]] = []
        turns = {f"r{round_}-{k}": int(rng.integers(1, 5)) for k in range(3)}
        jobs = [(turn, n, n == last - 1) for turn, last in turns.items() for n in range(last)]
        for index in rng.permutation(len(jobs)):
            turn, n, is_last = jobs[index]
            flags = (LAST if is_last else 0) | (4 if rng.random() < 0.2 else 0)
            phoneme = NAN_PHONEME if rng.random() < 0.03 else 7
            frames = int(rng.integers(2, 200))
            sender = stage.send(frames, piece=(n, flags), turn=turn, phoneme=phoneme)
            pieces.append((turn, n, sender))
            if rng.random() < 0.05:
                stage.cancel(turn)
        for _, n, sender in pieces:
            sender.wait()
            assert sender.finals == 1
            if not sender.error():
                assert [place[:2] for place in places(sender)] == [
                    [n, chunk] for chunk in range(len(sender.responses))
                ]
