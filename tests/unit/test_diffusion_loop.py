"""The model `acoustic`: who shares a call, chunks, and what they carry."""

import json
import time

import numpy as np
import pytest

from tests.fakes import WAIT_S, text
from tests.unit.acoustic_stage import LAST, SPEECH, Stage, Turnstile, latents, locked, places, stage

__all__ = ["locked", "stage"]


def test_a_lone_request_is_answered_in_chunks_with_everything_the_vocoder_takes(
    stage: Stage,
) -> None:
    sender = stage.send(130, turn="t")
    values = sender.values()
    assert places(sender) == [[0, 0, LAST], [0, 1, LAST], [0, 2, LAST | 1]]
    assert [v["LATENT"].shape for v in values] == [(1, 34, 64), (1, 90, 64), (1, 36, 64)]
    assert {name: values[0][name].shape for name in ("F0", "VOICED", "PHASE", "NOISE")} == {
        "F0": (1, 34),
        "VOICED": (1, 34),
        "PHASE": (1, 34),
        "NOISE": (1, 34, 1202),
    }
    assert stage.flow.conditions == [(1, 144)]
    assert stage.flow.times == [[0.0], [0.25], [0.5], [0.75]]
    events = [json.loads(entry) for entry in values[0]["EVENTS"][0]]
    assert [(event["what"], event["members"]) for event in events] == [("queue", 1), ("compute", 1)]
    assert (events[1]["steps"], events[1]["solver"], events[1]["turn"]) == (4, "euler", "t")


def test_without_streaming_the_answer_is_one_chunk_of_the_same_frames(stage: Stage) -> None:
    whole, parts = stage.send(200, stream=False), stage.send(200)
    assert places(whole) == [[0, 0, LAST | 1]]
    assert len(parts.values()) > 1
    assert (latents(whole) == latents(parts)).all()


def test_concurrent_pieces_of_one_key_share_every_call(stage: Stage) -> None:
    stage.hold()
    senders = [stage.send(81 + 9 * k, phoneme=10 + k, seed=k) for k in range(8)]
    stage.settle()
    stage.flow.open.set()
    together = [latents(sender) for sender in senders]
    assert stage.flow.conditions == [(1, 32), (8, 144)]
    assert [shape[0] for shape in stage.flow.steps] == [1] * 4 + [8] * 4
    assert stage.flow.lengths[-1] == [81 + 9 * k for k in range(8)]
    for k, frames in enumerate(together):
        alone = latents(stage.send(81 + 9 * k, phoneme=10 + k, seed=k))
        assert np.abs(alone - frames).max() < 1e-6


def test_voices_share_a_batch_and_each_row_is_told_its_own(stage: Stage) -> None:
    """Public case C11."""
    stage.hold()
    senders = [stage.send(90, voice=voice) for voice in ("alto", "baritone")]
    stage.settle()
    stage.flow.open.set()
    alto, baritone = (sender.values()[0] for sender in senders)
    assert stage.flow.manners[-1] == [[0, 1], [0, 0]]
    assert [one["VOICE"].tolist() for one in (alto, baritone)] == [[[0]], [[1]]]
    melodies = [
        (np.log(one["F0"]) - SPEECH["voices"][voice]["log_f0_mean"])
        / SPEECH["voices"][voice]["log_f0_std"]
        for voice, one in (("alto", alto), ("baritone", baritone))
    ]
    np.testing.assert_allclose(melodies[0], melodies[1], atol=1e-3)
    assert np.ptp(melodies[0]) > 0.1


def test_a_shortcut_is_told_to_the_decoder_and_one_not_learnt_is_refused(stage: Stage) -> None:
    stage.send(90, solver="shortcut", steps=2).wait()
    assert stage.flow.manners == [[[0], [2]]]
    assert stage.flow.times == [[0.0], [0.5]]
    assert "1, 2, 4 are accepted" in stage.send(90, solver="shortcut", steps=3).error()
    assert "accepted: alto, baritone" in stage.send(90, voice="tenor").error()


def test_a_batch_never_mixes_steps_solvers_or_lengths_and_each_equals_alone(locked: Stage) -> None:
    """Public case C13."""
    wishes = [
        {"frames": frames, "steps": steps, "solver": solver}
        for frames in (40, 120)
        for steps in (0, 2, 8)
        for solver in ("", "midpoint")
    ][:11]
    locked.hold()
    senders = [locked.send(**wish) for wish in wishes]
    locked.settle()
    locked.flow.open.set()
    together = [latents(sender) for sender in senders]
    assert all(len(set(times)) == 1 for times in locked.flow.times)
    assert all(len({length <= 80 for length in row}) == 1 for row in locked.flow.lengths)
    evaluations = sum((w["steps"] or 4) * (2 if w["solver"] else 1) for w in wishes)
    assert len(locked.flow.steps) == 4 + evaluations
    for wish, frames in zip(wishes, together, strict=True):
        assert np.abs(latents(locked.send(**wish)) - frames).max() < 1e-6


def test_default_steps_and_named_ones_that_equal_them_share_a_batch(stage: Stage) -> None:
    stage.hold()
    senders = [stage.send(), stage.send(steps=4), stage.send(solver="euler")]
    stage.settle()
    stage.flow.open.set()
    assert all(sender.error() == "" for sender in senders)
    assert len(stage.flow.conditions) == 2


@pytest.mark.parametrize("step", [0, 1, 3])
def test_nobody_joins_a_locked_batch_whatever_step_it_is_at(locked: Stage, step: int) -> None:
    gate = Turnstile(locked.flow, step)
    early = locked.send(24)
    gate.wait()
    late = locked.send(24)
    locked.settle()
    gate.go.set()
    assert early.error() == late.error() == ""
    assert [shape[0] for shape in locked.flow.steps] == [1] * 8
    assert [times[0] for times in locked.flow.times] == [0.0, 0.25, 0.5, 0.75] * 2


def test_nobody_joins_between_the_condition_and_the_first_step(locked: Stage) -> None:
    locked.hold()
    late = locked.send(24)
    locked.settle()
    locked.flow.open.set()
    late.wait()
    assert [shape[0] for shape in locked.flow.steps] == [1] * 8


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 16, 31, 32])
@pytest.mark.parametrize(("solver", "each"), [("euler", 1), ("midpoint", 2)])
def test_every_number_of_steps_is_made_exactly(
    stage: Stage, steps: int, solver: str, each: int
) -> None:
    assert stage.send(24, steps=steps, solver=solver).error() == ""
    evaluations = steps * each
    expected = [[k / evaluations] for k in range(evaluations)]
    assert np.allclose(stage.flow.times, expected, atol=1e-6)


@pytest.mark.parametrize("steps", [-1, 33])
def test_more_or_fewer_steps_than_that_are_refused(stage: Stage, steps: int) -> None:
    assert f"steps is {steps}; 0 to 32 is accepted" in stage.send(24, steps=steps).error()


def test_first_pieces_go_before_later_ones(stage: Stage) -> None:
    stage.hold()
    later = stage.send(40, piece=(1, 0), turn="a")
    first = stage.send(120, piece=(0, 0), turn="b")
    stage.settle()
    stage.flow.open.set()
    first.wait()
    assert stage.flow.lengths[4] == [120]
    stage.cancel("a")
    later.wait()


def test_the_seed_and_the_piece_decide_the_noise(stage: Stage) -> None:
    one, again, other = (stage.send(40, seed=seed).values()[0] for seed in (1, 1, 2))
    assert (one["NOISE"] == again["NOISE"]).all()
    assert (one["LATENT"] == again["LATENT"]).all()
    assert (one["NOISE"] != other["NOISE"]).any()
    assert (one["LATENT"] != other["LATENT"]).any()


def test_what_came_with_the_piece_goes_on_with_every_chunk(stage: Stage) -> None:
    carried = {"TEXT": text("Sure."), "HEARD": text("A tea."), "STATUS": text("stop")}
    earlier = text('{"stage":"think","turn":"t"}')
    sender = stage.send(100, piece=(0, LAST), inputs={**carried, "EVENTS": earlier})
    for values in sender.values():
        assert {name: values[name][0, 0] for name in carried} == {
            "TEXT": b"Sure.",
            "HEARD": b"A tea.",
            "STATUS": b"stop",
        }
        assert values["EVENTS"][0, 0] == b'{"stage":"think","turn":"t"}'


@pytest.mark.parametrize(
    ("flags", "said"), [(LAST | 4, "..."), (LAST, ""), (LAST, "  "), (LAST | 5, "")]
)
def test_a_piece_without_sound_is_one_short_silent_chunk(
    stage: Stage, flags: int, said: str
) -> None:
    inputs = {"TEXT": text(said), "PROSODY": np.zeros((1, 1, 3), np.int32)}
    sender = stage.send(piece=(0, flags), inputs=inputs)
    (values,) = sender.values()
    assert values["PIECE"].tolist() == [[0, 0, flags | 1]]
    assert values["LATENT"].shape == (1, 11, 64)
    assert not values["VOICED"].any()
    assert stage.flow.conditions == []


def test_a_piece_whose_time_is_over_is_not_spoken(stage: Stage) -> None:
    stage.flow.open.clear()
    first = stage.send(turn="first")
    assert stage.flow.entered.acquire(timeout=WAIT_S)
    late = stage.send(200, turn="late", deadline_ms=1)
    time.sleep(0.01)
    stage.flow.open.set()
    assert "code=DEADLINE_MISSED" in late.error()
    assert first.error() == ""
    assert len(stage.flow.conditions) == 1
