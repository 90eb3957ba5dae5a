"""The model `encode` behind the fake stub: how batches form, and who gets what."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.encoder_window import whisper
from python_backends.encoder_window.mel import log_mel
from python_backends.encoder_window.model import TritonPythonModel
from tests import fakes
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

RATE = 16_000
PARAMETERS = {
    "encoder_model": "asr_encoder",
    "window_ms": "6",
    "max_batch": "8",
    "max_audio_s": "60",
    "build_workers": "1",
    "max_waiting": "12",
}


class FakeEncoder:
    """HIDDEN holds the mel's highest value of each row; can be held shut, and made to refuse."""

    def __init__(self, width: int = 384) -> None:
        self.width = width
        self.batches: list[tuple[int, ...]] = []
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Semaphore(0)
        self.refuses_above = self.overflows_above = np.inf

    def __call__(self, request: InferenceRequest) -> InferenceResponse:
        mel = request.values()["MEL"]
        self.batches.append(mel.shape)
        self.entered.release()
        assert self.open.wait(WAIT_S)
        marks = mel.max(axis=(1, 2))
        if (marks > self.refuses_above).any():
            return refusal("[tristage code=INVALID_INPUT stage=asr_encoder] too loud")
        marks = np.where(marks > self.overflows_above, np.inf, marks)
        shape = (len(mel), mel.shape[2] // 2, self.width)
        return answer(HIDDEN=np.broadcast_to(marks[:, None, None], shape).astype(np.float32))


class Stage:
    """The model, with short ways to send to it."""

    def __init__(self, encoder: FakeEncoder, **parameters: str) -> None:
        self.encoder = encoder
        self.sent: list[InferenceResponseSender] = []
        MODELS["asr_encoder"] = encoder
        self.model = TritonPythonModel()
        self.model.initialize(
            model_args("encode", PARAMETERS | parameters, inputs=["AUDIO", "CONTROL"])
        )

    def send(
        self, sound: NDArray[np.float32], turn: str = "t", **parameters: Any
    ) -> InferenceResponseSender:
        request = arriving({"AUDIO": sound[None]}, request_id=turn, parameters=parameters)
        self.model.execute([request])
        self.sent.append(request.sender)
        return request.sender

    def cancel(self, turn: str) -> None:
        order = arriving({"CONTROL": text(json.dumps({"cancel": turn}))}, request_id="control")
        self.model.execute([order])
        order.sender.wait()

    def hold(self) -> InferenceResponseSender:
        """Occupy the encoder with a request of its own until `encoder.open` is set."""
        self.encoder.open.clear()
        holder = self.send(noise(1, seed=99), "holder")
        assert self.encoder.entered.acquire(timeout=WAIT_S)
        return holder

    def until_waiting(self, count: int) -> None:
        """Block until that many windows are ready behind the running batch."""
        window = self.model._loop._window  # type: ignore[attr-defined]
        self._until(lambda: sum(map(len, window._ready.values())) == count)

    def until_shared(self, count: int) -> None:
        """Block until that many windows wait for others that sound the same."""
        shared = self.model._loop._works._shared  # type: ignore[attr-defined]
        self._until(lambda: shared.joined == count)

    def _until(self, holds: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(4000):
            if holds():
                return
            pause.wait(0.005)
        raise AssertionError("it never came to that")


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage(FakeEncoder())
    yield made
    made.encoder.open.set()
    assert all(sender.wait() is not None for sender in made.sent)
    made.model.finalize()
    loop = made.model._loop
    loop.check_integrity()  # type: ignore[attr-defined]
    assert not loop._clips  # type: ignore[attr-defined]


def noise(seconds: float, amplitude: float = 0.5, seed: int = 0) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-amplitude, amplitude, round(seconds * RATE)).astype(np.float32)


def features_held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Features are made once the event is set."""
    go_on = threading.Event()

    def held(sound: NDArray[np.float32], frames: int, mels: int) -> NDArray[np.float32]:
        assert go_on.wait(WAIT_S)
        return log_mel(sound, frames, mels)

    monkeypatch.setattr(whisper, "log_mel", held)
    return go_on


def spans(outputs: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    return [json.loads(entry) for entry in outputs["EVENTS"].reshape(-1)]


def test_a_lone_request_leaves_at_once_and_says_why(stage: Stage) -> None:
    (outputs,) = stage.send(noise(2)).values()
    assert outputs["HIDDEN"].shape == (1, 1, 750, 384)
    assert outputs["VALID"].tolist() == [[750]]
    assert outputs["SPAN_MS"].tolist() == [[[0, 2000]]]
    assert outputs["NO_SPEECH"].tolist() == [[0.0]]
    assert [span["what"] for span in spans(outputs)] == ["build", "queue", "compute"]
    queue = spans(outputs)[1]
    assert (queue["reason"], queue["members"], queue["turn"]) == ("no_companion", 1, "t")


def test_requests_that_come_while_the_encoder_runs_leave_together(stage: Stage) -> None:
    stage.hold()
    others = [stage.send(noise(1, seed=k + 1), f"t{k}") for k in range(8)]
    stage.until_waiting(8)
    stage.encoder.open.set()
    assert all(sender.values()[0]["VALID"].tolist() == [[750]] for sender in others)
    assert stage.encoder.batches == [(1, 80, 1500), (8, 80, 1500)]


def test_a_batch_has_one_shape_bucket_and_everybody_gets_their_own_states(stage: Stage) -> None:
    """Public case C1."""
    stage.hold()
    clips = [noise(1 + 5 * k, amplitude=0.1 * (k + 1), seed=k) for k in range(5)]
    others = [stage.send(clip, f"t{k}") for k, clip in enumerate(clips)]
    stage.until_waiting(5)
    stage.encoder.open.set()
    together = [sender.values()[0] for sender in others]
    assert sorted(stage.encoder.batches[1:]) == [(2, 80, 3000), (3, 80, 1500)]
    for clip, outputs in zip(clips, together, strict=True):
        (alone,) = stage.send(clip).values()
        assert (alone["HIDDEN"] == outputs["HIDDEN"]).all()
    assert len({float(outputs["HIDDEN"][0, 0, 0, 0]) for outputs in together}) == 5


def test_a_long_clip_is_answered_once_with_all_its_windows(stage: Stage) -> None:
    (outputs,) = stage.send(noise(40)).values()
    assert outputs["HIDDEN"].shape == (1, 2, 1500, 384)
    assert outputs["VALID"].tolist() == [
        [1500, 750 if outputs["SPAN_MS"][0, 1, 0] > 25500 else 1500]
    ]
    assert outputs["SPAN_MS"][0, 0, 1] == outputs["SPAN_MS"][0, 1, 0]
    assert outputs["SPAN_MS"][0, 1, 1] == 40_000


def test_padding_of_the_shorter_window_is_zero(stage: Stage) -> None:
    sound = noise(33)
    (outputs,) = stage.send(sound).values()
    assert outputs["VALID"].tolist() == [[1500, 750]]
    assert (outputs["HIDDEN"][0, 1, 750:] == 0).all()
    assert (outputs["HIDDEN"][0, 1, :750] != 0).all()


def test_silence_is_answered_without_the_encoder(stage: Stage) -> None:
    """Public case A3."""
    (outputs,) = stage.send(np.zeros(3 * RATE, np.float32)).values()
    assert outputs["VALID"].tolist() == [[0]]
    assert outputs["NO_SPEECH"].tolist() == [[1.0]]
    assert outputs["HIDDEN"].shape == (1, 1, 1, 384)
    assert not outputs["HIDDEN"].any()
    assert stage.encoder.batches == []


def test_only_the_window_with_sound_is_encoded(stage: Stage) -> None:
    sound = np.concatenate([noise(29), np.zeros(20 * RATE, np.float32)])
    (outputs,) = stage.send(sound).values()
    assert outputs["VALID"].tolist() == [[1500, 0]]
    assert outputs["NO_SPEECH"].tolist() == [[0.0, 1.0]]
    assert stage.encoder.batches == [(1, 80, 3000)]


@pytest.mark.parametrize("samples", [1, 2, 159, 200, 401])
def test_very_short_clips_are_answered(stage: Stage, samples: int) -> None:
    (outputs,) = stage.send(noise(1)[:samples]).values()
    assert outputs["HIDDEN"].shape[0] == 1


def test_min_frames_encodes_in_the_long_bucket(stage: Stage) -> None:
    (outputs,) = stage.send(noise(1), min_frames=3000).values()
    assert outputs["VALID"].tolist() == [[1500]]


def test_a_bad_member_fails_alone(stage: Stage) -> None:
    stage.hold()
    good = [stage.send(noise(1, amplitude=0.01, seed=k), f"good{k}") for k in range(3)]
    bad = stage.send(noise(1, amplitude=1.9), "bad")
    stage.until_waiting(4)
    stage.encoder.refuses_above = float(log_mel(noise(1, amplitude=0.2), 1500).max())
    stage.encoder.open.set()
    assert "code=INVALID_INPUT stage=asr_encoder turn=bad] too loud" in bad.error()
    assert all(sender.error() == "" for sender in good)
    assert [shape[0] for shape in stage.encoder.batches] == [1, 4, 1, 1, 1, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_clip_that_is_not_finite_fails_alone_in_a_crowd(stage: Stage, bad: float) -> None:
    stage.hold()
    clips = [noise(1, seed=k) for k in range(4)]
    clips[2][777] = bad
    senders = [stage.send(clip, f"t{k}") for k, clip in enumerate(clips)]
    stage.until_waiting(3)
    stage.encoder.open.set()
    assert ["NaN or infinite" in sender.error() for sender in senders] == [
        False,
        False,
        True,
        False,
    ]
    assert [shape[0] for shape in stage.encoder.batches] == [1, 3]


def test_a_clip_whose_features_cannot_be_made_fails_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fragile(sound: NDArray[np.float32], frames: int, mels: int) -> NDArray[np.float32]:
        if len(sound) == 777:
            raise ZeroDivisionError("an unlucky length")
        mel = log_mel(sound, frames, mels)
        return mel[:, :-1] if len(sound) == 778 else mel * np.nan if len(sound) == 779 else mel

    monkeypatch.setattr(whisper, "log_mel", fragile)
    stage.hold()
    senders = [stage.send(noise(1)[: 776 + k], f"t{k}") for k in range(4)]
    stage.until_waiting(1)
    stage.encoder.open.set()
    errors = [sender.error() for sender in senders]
    assert errors[0] == ""
    assert "code=STAGE_FAILED stage=encode turn=t1] features of this sound" in errors[1]
    assert any(
        "in fragile" in line and "ZeroDivisionError" in line for _, line in fakes.Logger.lines
    )
    assert "an unlucky length" not in errors[1], "what a bug says is for the log"
    assert all("a wrong shape or is not finite" in error for error in errors[2:])
    assert stage.encoder.batches == [(1, 80, 1500)] * 2


def test_states_that_are_not_finite_are_the_error_of_their_own_window(stage: Stage) -> None:
    stage.hold()
    senders = [stage.send(noise(1, seed=k, amplitude=0.1 + k), f"t{k}") for k in range(2)]
    stage.until_waiting(2)
    stage.encoder.overflows_above = float(log_mel(noise(1), 1500).max())
    stage.encoder.open.set()
    assert [sender.error() == "" for sender in senders] == [True, False]
    assert "NaN or infinite" in senders[1].error()
    assert [shape[0] for shape in stage.encoder.batches] == [1, 2]


@pytest.mark.parametrize("samples", [0, 1, 2, 159, 160, 199, 200, 201, 399, 400, 401])
def test_a_clip_of_a_few_samples_leaves_its_neighbours_in_peace(stage: Stage, samples: int) -> None:
    """Public case A1."""
    stage.hold()
    speech = stage.send(noise(3, seed=1), "speech")
    tiny = stage.send(noise(1, seed=2)[:samples], "tiny")
    stage.until_waiting(1 + (samples > 1))
    stage.encoder.open.set()
    assert speech.values()[0]["VALID"].tolist() == [[750]]
    if samples:
        assert tiny.values()[0]["VALID"].tolist() == [[750 if samples > 1 else 0]]
    else:
        assert "no samples" in tiny.error()


def test_equal_sounds_that_wait_together_are_encoded_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.hold()
    go_on = features_held(monkeypatch)
    senders = [stage.send(noise(2), f"t{k}") for k in range(3)]
    stage.send(noise(2, seed=1), "other")
    stage.until_shared(2)
    go_on.set()
    stage.until_waiting(2)
    stage.encoder.open.set()
    found = [sender.values()[0] for sender in senders]
    assert stage.encoder.batches == [(1, 80, 1500), (2, 80, 1500)]
    for number, outputs in enumerate(found):
        assert (outputs["HIDDEN"] == found[0]["HIDDEN"]).all()
        assert {span["turn"] for span in spans(outputs)} == {f"t{number}"}
        assert [span["what"] for span in spans(outputs)] == ["build", "queue", "compute"]


def test_a_sound_that_is_being_encoded_is_not_encoded_again(stage: Stage) -> None:
    stage.encoder.open.clear()
    first = stage.send(noise(2), "first")
    assert stage.encoder.entered.acquire(timeout=WAIT_S)
    second = stage.send(noise(2), "second")
    stage.until_shared(1)
    stage.encoder.open.set()
    assert (first.values()[0]["HIDDEN"] == second.values()[0]["HIDDEN"]).all()
    assert len(stage.encoder.batches) == 1
    (compute,) = spans(second.values()[0])
    (outer,) = (span for span in spans(first.values()[0]) if span["what"] == "compute")
    assert compute["what"] == "compute"
    assert outer["start_ns"] < compute["start_ns"] < compute["end_ns"] == outer["end_ns"]


def test_a_sound_that_comes_back_later_is_encoded_again(stage: Stage) -> None:
    for turn in ("first", "second"):
        stage.send(noise(2), turn).wait()
    assert len(stage.encoder.batches) == 2


def test_equal_sounds_in_different_buckets_are_not_shared(stage: Stage) -> None:
    stage.hold()
    short, long = stage.send(noise(2), "short"), stage.send(noise(2), "long", min_frames=3000)
    stage.until_waiting(2)
    stage.encoder.open.set()
    assert [s.values()[0]["VALID"].tolist() for s in (short, long)] == [[[750]], [[1500]]]


@pytest.mark.parametrize("cancelled", [0, 1])
def test_of_two_who_share_a_sound_one_may_cancel(stage: Stage, cancelled: int) -> None:
    stage.hold()
    senders = [stage.send(noise(2), f"t{k}") for k in range(2)]
    stage.until_waiting(1)
    stage.until_shared(1)
    stage.cancel(f"t{cancelled}")
    assert "code=CANCELLED" in senders[cancelled].error()
    stage.encoder.open.set()
    assert senders[1 - cancelled].values()[0]["VALID"].tolist() == [[750]]
    assert len(stage.encoder.batches) == 2


def test_one_may_cancel_while_the_sound_that_both_share_is_being_encoded(stage: Stage) -> None:
    stage.encoder.open.clear()
    first = stage.send(noise(2), "first")
    assert stage.encoder.entered.acquire(timeout=WAIT_S)
    second = stage.send(noise(2), "second")
    stage.cancel("first")
    stage.encoder.open.set()
    assert "code=CANCELLED" in first.error()
    assert second.values()[0]["VALID"].tolist() == [[750]]
    assert len(stage.encoder.batches) == 1


def test_when_all_who_share_a_sound_cancel_it_is_not_encoded(stage: Stage) -> None:
    stage.hold()
    senders = [stage.send(noise(2), f"t{k}") for k in range(2)]
    stage.until_waiting(1)
    for k in range(2):
        stage.cancel(f"t{k}")
    assert all("code=CANCELLED" in sender.error() for sender in senders)
    stage.encoder.open.set()
    stage.send(noise(2), "again").wait()
    assert len(stage.encoder.batches) == 2


def test_an_error_goes_to_everybody_who_shares_the_sound(stage: Stage) -> None:
    stage.hold()
    senders = [stage.send(noise(2, amplitude=1.9), f"t{k}") for k in range(2)]
    good = stage.send(noise(1, amplitude=0.01), "good")
    stage.until_waiting(2)
    stage.encoder.refuses_above = float(log_mel(noise(1, amplitude=0.2), 1500).max())
    stage.encoder.open.set()
    errors = [sender.error() for sender in senders]
    assert [f"turn=t{k}] too loud" in error for k, error in enumerate(errors)] == [True, True]
    assert good.error() == ""


def test_sharing_can_be_turned_off() -> None:
    stage = Stage(FakeEncoder(), share_identical="false")
    stage.hold()
    senders = [stage.send(noise(2), f"t{k}") for k in range(3)]
    stage.until_waiting(3)
    stage.encoder.open.set()
    assert all(sender.error() == "" for sender in senders)
    assert stage.encoder.batches[1:] == [(3, 80, 1500)]
    stage.model.finalize()


def test_another_whisper_has_other_mels_and_other_states() -> None:
    large = Stage(FakeEncoder(width=64), mels="128", width="64")
    (outputs,) = large.send(noise(1)).values()
    assert large.encoder.batches == [(1, 128, 1500)]
    assert outputs["HIDDEN"].shape == (1, 1, 750, 64)
    large.model.finalize()


def test_states_of_another_width_than_was_told_are_an_error() -> None:
    wrong = Stage(FakeEncoder(width=64))
    assert "code=STAGE_FAILED" in (error := wrong.send(noise(1)).error())
    assert "HIDDEN [1, 750, 64] to MEL [1, 80, 1500]; [1, 750, 384] was expected" in error
    wrong.model.finalize()


def test_a_pass_has_no_more_frames_than_it_may() -> None:
    capped = Stage(FakeEncoder(), max_batch_frames="6000")
    capped.hold()
    senders = [capped.send(noise(16, seed=k), f"t{k}") for k in range(3)]
    capped.until_waiting(3)
    capped.encoder.open.set()
    (outputs,) = senders[0].values()
    assert spans(outputs)[1]["reason"] == "cost_cap"
    assert all(sender.error() == "" for sender in senders)
    assert [shape[0] for shape in capped.encoder.batches] == [1, 2, 1]
    capped.model.finalize()


def test_bad_input_never_reaches_the_encoder(stage: Stage) -> None:
    assert "code=INVALID_INPUT stage=encode turn=t] AUDIO has no samples" in (
        stage.send(np.zeros(0, np.float32)).error()
    )
    assert "AUDIO lasts 61.00 s" in stage.send(np.zeros(61 * RATE, np.float32)).error()
    assert stage.encoder.batches == []


def test_a_request_without_audio_is_told_so(stage: Stage) -> None:
    request = arriving({})
    stage.model.execute([request])
    assert "input AUDIO is missing" in request.sender.error()


def test_a_cancelled_turn_that_waits_is_answered_at_once(stage: Stage) -> None:
    holder = stage.hold()
    doomed = stage.send(noise(1), "doomed")
    stage.until_waiting(1)
    stage.cancel("doomed")
    assert "code=CANCELLED" in doomed.error()
    assert not holder.ended.is_set()
    stage.encoder.open.set()
    assert holder.error() == ""
    assert len(stage.encoder.batches) == 1


def test_a_cancelled_turn_in_the_running_batch_stays_open_until_its_end(stage: Stage) -> None:
    """An exec without an open request would take the server down at unload."""
    holder = stage.hold()
    stage.cancel("holder")
    bystander = stage.send(noise(1), "bystander")
    stage.until_waiting(1)
    assert not holder.ended.is_set()
    stage.encoder.open.set()
    assert "code=CANCELLED" in holder.error()
    assert bystander.error() == ""


def test_a_caller_who_has_left_is_dropped_before_encoding(stage: Stage) -> None:
    stage.hold()
    gone = stage.send(noise(1), "gone")
    stage.until_waiting(1)
    gone.cancelled = True
    stage.encoder.open.set()
    assert "code=CANCELLED" in gone.error()
    assert len(stage.encoder.batches) == 1


def test_a_request_whose_time_is_over_is_not_encoded(stage: Stage) -> None:
    stage.hold()
    late = stage.send(noise(1), "late", deadline_ms=1)
    stage.until_waiting(1)
    stage.encoder.open.set()
    assert "code=DEADLINE_MISSED" in late.error()
    assert "not answered within 1 ms" in late.error()
    assert len(stage.encoder.batches) == 1


def test_a_caller_who_leaves_while_features_are_made_is_answered_before_they_are(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a lone caller's pass need not wait for the question whether the caller is there."""
    go_on = features_held(monkeypatch)
    gone = arriving({"AUDIO": noise(1)[None]}, request_id="gone")
    gone.sender.cancelled = True
    stage.model.execute([gone])
    assert "code=CANCELLED" in gone.sender.error()
    go_on.set()
    assert stage.send(noise(2), "next").error() == ""
    assert [shape[0] for shape in stage.encoder.batches] == [1]


def test_who_joins_a_sound_that_is_built_has_waited_for_no_build(stage: Stage) -> None:
    stage.hold()
    first = stage.send(noise(2), "first")
    stage.until_waiting(1)
    second = stage.send(noise(2), "second")
    stage.until_shared(1)
    stage.encoder.open.set()
    told = [[span["what"] for span in spans(one.values()[0])] for one in (first, second)]
    assert told == [["build", "queue", "compute"], ["queue", "compute"]]


def test_more_than_max_waiting_requests_are_refused_with_a_time_to_come_back(stage: Stage) -> None:
    stage.hold()
    accepted = [stage.send(noise(0.2), f"t{k}") for k in range(11)]
    refused = stage.send(noise(0.2), "late").error()
    assert "code=OVERLOADED" in refused
    assert "retry_after_ms=" in refused
    stage.encoder.open.set()
    assert all(sender.error() == "" for sender in accepted)


def test_a_crash_of_the_encoder_call_answers_everybody_and_the_stage_goes_on(stage: Stage) -> None:
    stage.hold()
    waiting = stage.send(noise(1), "waiting")
    stage.until_waiting(1)
    MODELS.pop("asr_encoder")
    stage.encoder.open.set()
    assert "code=STAGE_FAILED" in waiting.error()
    MODELS["asr_encoder"] = stage.encoder
    (outputs,) = stage.send(noise(1), "next").values()
    assert outputs["VALID"].tolist() == [[750]]


def test_unloading_ends_every_thread() -> None:
    before = set(threading.enumerate())
    stage = Stage(FakeEncoder())
    stage.send(noise(1)).wait()
    stage.model.finalize()
    assert set(threading.enumerate()) <= before


def test_random_traffic_is_answered_once_each(stage: Stage) -> None:
    rng = np.random.default_rng(5)
    senders = []
    for k in range(30):
        sound = noise(float(rng.uniform(0.01, 1.5)), seed=k)
        senders.append(stage.send(noise(1, seed=k % 3) if k % 2 else sound, f"t{k}"))
        if rng.random() < 0.3:
            stage.cancel(f"t{rng.integers(0, k + 1)}")
        if rng.random() < 0.4:
            senders[int(rng.integers(0, k + 1))].wait()
    for sender in senders:
        assert sender.wait() is not None
        assert (sender.finals, len(sender.responses)) == (1, 1)
