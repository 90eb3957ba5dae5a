"""The model `acoustic` behind the fake stub: locked batches, chunks, order, failures."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.diffusion_lock.model import TritonPythonModel
from tests.fakes import (
    MODELS,
    WAIT_S,
    InferenceRequest,
    InferenceResponse,
    InferenceResponseSender,
    answer,
    arriving,
    model_args,
    refusal,
    text,
)

PARAMETERS = {
    "condition_model": "acoustic_condition",
    "step_model": "acoustic_step",
    "steps": "4",
    "solver": "euler",
    "max_batch": "8",
    "max_frames": "1600",
    "max_waiting": "12",
    "hold_s": "0.05",
}
LAST = 2
NAN_PHONEME, DEAF_PHONEME, REFUSED_PHONEME = 101, 102, 103


class FakeFlow:
    """A flow towards the phoneme's number, row by row; it can be held shut.

    Phoneme NAN_PHONEME gives NaN, DEAF_PHONEME gives zeros, REFUSED_PHONEME an error of the batch.
    """

    def __init__(self) -> None:
        self.conditions: list[tuple[int, ...]] = []
        self.steps: list[tuple[int, ...]] = []
        self.lengths: list[list[int]] = []
        self.times: list[list[float]] = []
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Semaphore(0)
        MODELS["acoustic_condition"] = self.condition
        MODELS["acoustic_step"] = self.step

    def condition(self, request: InferenceRequest) -> InferenceResponse:
        given = request.values()
        self.conditions.append(given["FRAME_PHONEME"].shape)
        self.entered.release()
        assert self.open.wait(WAIT_S)
        if (given["PHONEME"] == REFUSED_PHONEME).any():
            return refusal("index out of range")
        assert ((given["PITCH"] == -1) <= (given["PHONEME"] == 0)).all()
        phoneme = np.take_along_axis(given["PHONEME"], given["FRAME_PHONEME"], axis=1)
        marks = phoneme + given["FRAME_POSITION"][..., 0]
        return answer(CONDITION=np.repeat(marks[..., None], 128, axis=2).astype(np.float32))

    def step(self, request: InferenceRequest) -> InferenceResponse:
        given = request.values()
        x, length, mark = given["X"], given["LENGTH"], given["CONDITION"][..., :1]
        self.steps.append(x.shape)
        self.times.append(given["TIME"][:, 0].tolist())
        self.lengths.append(length[:, 0].tolist())
        velocity = mark / 100 - 0.1 * x * (1 + given["TIME"][..., None])
        velocity = np.where(
            np.round(mark) == DEAF_PHONEME, -x / (1 - given["TIME"][..., None]), velocity
        )
        velocity = np.where(np.round(mark) == NAN_PHONEME, np.nan, velocity)
        valid = np.arange(x.shape[1])[None, :, None] < length[..., None]
        return answer(VELOCITY=np.where(valid, velocity, 0).astype(np.float32))


class Stage:
    """The model, with short ways to send to it."""

    def __init__(self, repository: Path, flow: FakeFlow, **changed: str) -> None:
        self.flow = flow
        self.sent: list[InferenceResponseSender] = []
        folder = repository / "acoustic" / "1"
        folder.mkdir(parents=True)
        voice = {"log_f0_mean": 5.2, "log_f0_std": 0.2, "frame_advance": [37.5, 225.0, 37.5]}
        (folder / "speech.json").write_text(json.dumps(voice))
        self.model = TritonPythonModel()
        args = model_args("acoustic", {**PARAMETERS, **changed}, repository=str(repository))
        self.model.initialize(args)

    def send(
        self,
        frames: int = 40,
        *,
        piece: tuple[int, int] | None = None,
        turn: str = "",
        phoneme: int = 7,
        inputs: dict[str, NDArray[Any]] | None = None,
        **parameters: Any,
    ) -> InferenceResponseSender:
        """Two phonemes of `frames` frames together; `piece` is (number, flags)."""
        rows = [(phoneme, frames - frames // 2, 3), (9, frames // 2, 0)]
        given: dict[str, NDArray[Any]] = {"PROSODY": np.array([rows], np.int32)}
        if piece is not None:
            given["PIECE"] = np.array([[piece[0], 0, piece[1]]], np.int32)
        request = arriving({**given, **(inputs or {})}, request_id=turn, parameters=parameters)
        self.model.execute([request])
        self.sent.append(request.sender)
        return request.sender

    def cancel(self, turn: str) -> None:
        order = arriving({"CONTROL": text(json.dumps({"cancel": turn}))}, request_id="control")
        self.model.execute([order])
        order.sender.wait()

    def hold(self, **how: Any) -> InferenceResponseSender:
        """Occupy the decoder with a request until `flow.open` is set."""
        self.flow.open.clear()
        holder = self.send(24, **{"turn": "holder", **how})
        assert self.flow.entered.acquire(timeout=WAIT_S)
        return holder

    def settle(self) -> None:
        """Return when everything sent before has been taken in."""
        assert "nothing of it is negative" in self.send(piece=(-1, 0)).error()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, FakeFlow())
    yield made
    made.flow.open.set()
    assert all(sender.wait() is not None for sender in made.sent)
    made.model.finalize()
    loop = made.model._loop
    loop.check_integrity()  # type: ignore[attr-defined]
    assert not loop._open  # type: ignore[attr-defined]


def latents(sender: InferenceResponseSender) -> NDArray[np.float32]:
    """The frames that will be heard, all chunks joined."""
    return np.concatenate([values["LATENT"][0, 5:-5] for values in sender.values()])


def places(sender: InferenceResponseSender) -> list[list[int]]:
    return [values["PIECE"][0].tolist() for values in sender.values()]


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


def test_a_batch_never_mixes_steps_solvers_or_lengths_and_each_equals_alone(stage: Stage) -> None:
    wishes = [
        {"frames": frames, "steps": steps, "solver": solver}
        for frames in (40, 120)
        for steps in (0, 2, 8)
        for solver in ("", "midpoint")
    ][:11]
    stage.hold()
    senders = [stage.send(**wish) for wish in wishes]
    stage.settle()
    stage.flow.open.set()
    together = [latents(sender) for sender in senders]
    assert all(len(set(times)) == 1 for times in stage.flow.times)
    assert all(len({length <= 80 for length in row}) == 1 for row in stage.flow.lengths)
    evaluations = sum((w["steps"] or 4) * (2 if w["solver"] else 1) for w in wishes)
    assert len(stage.flow.steps) == 4 + evaluations
    for wish, frames in zip(wishes, together, strict=True):
        assert np.abs(latents(stage.send(**wish)) - frames).max() < 1e-6


def test_default_steps_and_named_ones_that_equal_them_share_a_batch(stage: Stage) -> None:
    stage.hold()
    senders = [stage.send(), stage.send(steps=4), stage.send(solver="euler")]
    stage.settle()
    stage.flow.open.set()
    assert all(sender.error() == "" for sender in senders)
    assert len(stage.flow.conditions) == 2


def test_nobody_joins_a_running_batch(stage: Stage) -> None:
    stage.hold()
    late = stage.send(24)
    stage.settle()
    stage.flow.open.set()
    late.wait()
    assert [shape[0] for shape in stage.flow.steps] == [1] * 8


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
    assert "code=STAGE_FAILED stage=acoustic turn=t]" in orphan.error()
    assert "has not arrived" in orphan.error()


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


def test_one_cancelled_member_of_a_running_batch_is_left_out_of_the_answers(stage: Stage) -> None:
    stage.hold()
    doomed, other = stage.send(40, turn="doomed"), stage.send(40, turn="other")
    stage.settle()
    stage.flow.entered = threading.Semaphore(0)
    step, reached, go = stage.flow.step, threading.Event(), threading.Event()

    def slow(request: InferenceRequest) -> InferenceResponse:
        if len(request.values()["X"]) == 2:
            reached.set()
            assert go.wait(WAIT_S)
        return step(request)

    MODELS["acoustic_step"] = slow
    stage.flow.open.set()
    assert reached.wait(WAIT_S)
    stage.cancel("doomed")
    stage.settle()
    assert not doomed.ended.is_set()
    go.set()
    assert "code=CANCELLED" in doomed.error()
    assert len(doomed.values()) == 1
    assert other.error() == ""
    assert [shape[0] for shape in stage.flow.steps[4:]] == [2] * 4


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
