"""The emulated stages behind the fake stub, at a thousand times the profile's speed."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import python_backends.ar_loop.model as ar_loop
import python_backends.diffusion_lock.model as diffusion_lock
import python_backends.encoder_window.model as encoder_window
from loadtest.device import ENVIRONMENT, Delays, DevicePass, Emulation, Profile, create, read_passes
from python_backends.pieces import LAST_CHUNK, LAST_PIECE
from tests.fakes import InferenceResponseSender, arriving, model_args, text
from tests.repository.configs import ROOT, parse

BACKENDS = {
    "ar_loop": ar_loop,
    "diffusion_lock": diffusion_lock,
    "encoder_window": encoder_window,
}
Values = dict[str, NDArray[Any]]


class Lab:
    """Emulated models, loaded as their config.pbtxt says, on one device."""

    def __init__(self, folder: Path) -> None:
        self.device = folder / "lab.dev"
        self.file = folder / "emulation.json"
        self.spans = folder / "spans"
        create(self.device)
        self.configure("profile")
        self._loaded: list[Any] = []

    def configure(self, profile: str, **changed: Any) -> None:
        """Write the emulation file; models that are loaded later read it."""
        given = Profile.named(profile)
        devices = dict.fromkeys(given.stages, str(self.device))
        base = Emulation(
            given, devices, speed=1000.0, host_gap_ms=0.01, spans=str(self.spans), pieces=1
        )
        replace(base, **changed).write(self.file)

    def load(self, name: str) -> Callable[..., InferenceResponseSender]:
        """A model; the result sends it a request."""
        config = parse(ROOT / "loadtest" / "emulated" / name / "config.pbtxt")
        parameters = {key: value.string_value for key, value in config.parameters.items()}
        backend: ModuleType = BACKENDS[config.backend]
        model = backend.TritonPythonModel()
        model.initialize(model_args(name, parameters, inputs=[one.name for one in config.input]))
        self._loaded.append(model)

        def send(inputs: Values, turn: str = "t") -> InferenceResponseSender:
            request = arriving(inputs, request_id=turn)
            model.execute([request])
            return request.sender

        return send

    def passes(self, stage: str) -> list[DevicePass]:
        """What the device has done for a stage."""
        return [one for one in read_passes(self.device) if one.stage == stage]

    def close(self) -> None:
        for model in self._loaded:
            model.finalize()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    made = Lab(tmp_path)
    monkeypatch.setenv(ENVIRONMENT, str(made.file))
    yield made
    made.close()


def sound(bucket: float = 0.0) -> Values:
    return {"AUDIO": np.full((1, 16), bucket, np.float32)}


def heard() -> Values:
    return {"HEARD": text("hello"), "EVENTS": text('{"turn":"t","what":"before"}')}


def piece(number: int = 0, flags: int = LAST_PIECE) -> Values:
    return {"PIECE": np.array([[number, 0, flags]], np.int32), "TEXT": text("a"), **heard()}


def spans(values: Values) -> list[dict[str, Any]]:
    return [json.loads(row) for row in values["EVENTS"].flat if row]


def places(responses: list[Values]) -> list[list[int]]:
    return [values["PIECE"][0].tolist() for values in responses]


def test_listening_is_one_pass_and_says_that_nothing_was_heard(lab: Lab) -> None:
    [values] = lab.load("emu_listen")(sound()).values()
    assert b"emulated" in values["HEARD"].item()
    assert [one.members for one in lab.passes("listen")] == [1]
    assert [span["what"] for span in spans(values)] == ["build", "queue", "compute", "gather"]


def test_only_one_shape_shares_a_pass(lab: Lab) -> None:
    send = lab.load("emu_listen")
    senders = [send(sound(bucket), f"t{n}") for n, bucket in enumerate([1.0, 2.2, 1.1, 1.9])]
    found = [spans(sender.values()[0])[1] for sender in senders]
    assert [span["bucket"] for span in found] == [1, 2, 1, 2]
    assert sum(one.members for one in lab.passes("listen")) == 4


def test_sound_without_samples_is_refused(lab: Lab) -> None:
    send = lab.load("emu_listen")
    assert "code=INVALID_INPUT" in send({"AUDIO": np.zeros((1, 0), np.float32)}).error()
    assert "AUDIO is missing" in send({"EVENTS": text("")}).error()


def test_an_answer_takes_forty_passes_and_is_one_piece(lab: Lab) -> None:
    [values] = lab.load("emu_think")(heard()).values()
    assert values["PIECE"].tolist() == [[0, 0, LAST_PIECE]]
    assert values["HEARD"].item() == b"hello"
    passes = lab.passes("think")
    assert [one.members for one in passes] == [1] * 40
    assert [one.end_ns - one.start_ns for one in passes] == [8650] * 40


def test_spans_reach_from_the_first_step_submitted_to_the_end_of_the_last(lab: Lab) -> None:
    [values] = lab.load("emu_think")(heard()).values()
    passes = lab.passes("think")
    before, queue, compute = spans(values)
    assert before["what"] == "before"
    assert (queue["what"], queue["end_ns"]) == ("queue", passes[0].submitted_ns)
    assert (compute["what"], compute["steps"]) == ("compute", 40)
    assert (compute["start_ns"], compute["end_ns"]) == (passes[0].submitted_ns, passes[-1].end_ns)


def test_answers_share_their_steps(lab: Lab) -> None:
    send = lab.load("emu_think")
    for sender in [send(heard(), f"t{n}") for n in range(5)]:
        assert len(sender.values()) == 1
    passes = lab.passes("think")
    assert sum(one.members for one in passes) == 5 * 40
    assert len(passes) < 5 * 40
    for one in passes:
        assert one.end_ns - one.start_ns == round((8.6 + 0.05 * one.members) * 1000)


def test_those_who_come_together_join_one_step(lab: Lab) -> None:
    lab.configure("profile", delays=Delays(think_step_ms=5000.0))
    send = lab.load("emu_think")
    for sender in [send(heard(), f"t{n}") for n in range(6)]:
        sender.wait()
    members = [one.members for one in lab.passes("think")]
    assert max(after - before for before, after in pairwise([0, *members])) > 1


def test_speaking_gives_a_chunk_every_four_steps_and_one_at_the_end(lab: Lab) -> None:
    responses = lab.load("emu_speak")(piece()).values()
    assert places(responses) == [
        [0, chunk, LAST_PIECE | (LAST_CHUNK if chunk == 18 else 0)] for chunk in range(19)
    ]
    lasting = [values["SPEECH"].item() for values in responses]
    assert lasting == [320.0] * 18 + [240.0]
    assert len(lab.passes("speak")) == 75


def test_words_come_first_and_the_books_last(lab: Lab) -> None:
    responses = lab.load("emu_speak")(piece()).values()
    assert [values["TEXT"].item() for values in responses] == [b"a"] + [b""] * 18
    assert [bool(spans(values)) for values in responses] == [False] * 18 + [True]
    assert [span["what"] for span in spans(responses[-1])] == ["before", "queue", "compute"]


def test_pieces_share_the_steps_and_leave_in_their_order(lab: Lab) -> None:
    lab.configure("profile", pieces=3)
    thought = lab.load("emu_think")(heard()).values()
    assert places(thought) == [[0, 0, 0], [1, 0, 0], [2, 0, LAST_PIECE]]
    speak = lab.load("emu_speak")
    late = speak(piece(1, 0))
    last = speak(piece(2))
    assert not late.responses
    first = speak(piece(0, 0))
    assert [len(one.values()) for one in (first, late, last)] == [7, 7, 7]
    assert len(lab.passes("think")) == 40
    assert sum(one.members for one in lab.passes("speak")) == 75


def test_a_cancelled_turn_lets_go_of_what_it_held_back(lab: Lab) -> None:
    lab.configure("profile", pieces=2)
    speak = lab.load("emu_speak")
    held = speak(piece(1))
    control = speak({"CONTROL": text('{"cancel": "t"}')}, "control")
    control.wait()
    held.wait()
    assert len(speak(piece(0, 0), "another").values()) == 10


def test_a_piece_that_cannot_be_is_refused(lab: Lab) -> None:
    speak = lab.load("emu_speak")
    assert "piece 1 of a turn that has 1 pieces" in speak(piece(1)).error()
    assert "PIECE is missing" in speak(heard()).error()


def test_host_work_after_each_step_lasts_as_long_as_the_gap(lab: Lab) -> None:
    lab.configure("profile", host_gap_ms=0.5, gap_per_member_ms=0.25)
    lab.load("emu_think")(heard()).wait()
    [file] = lab.spans.glob("think-*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert all(line["end_ns"] - line["start_ns"] >= 750_000 for line in lines)
    assert {(line["what"], line["members"]) for line in lines} == {("host", 1)}


def test_a_piece_to_be_spoken_by_diffusion_has_a_short_or_a_long_shape(lab: Lab) -> None:
    lab.configure("profile-diffusion")
    responses = lab.load("emu_think_pieces")(heard()).values()
    assert [int(values["PROSODY"][0, :, 1].sum()) for values in responses] == [14, 108, 108, 108]
    assert [spans(values)[-1]["steps"] for values in responses] == [4, 12, 12, 12]


def test_a_locked_batch_costs_its_steps_and_longer_pieces_cost_more(lab: Lab) -> None:
    lab.configure("profile-diffusion")
    send = lab.load("emu_acoustic")
    prosody = [v["PROSODY"] for v in lab.load("emu_think_pieces")(heard()).values()]
    answered = [
        send({**piece(number, 0 if number == 0 else LAST_PIECE), "PROSODY": prosody[number]})
        for number in (0, 1)
    ]
    assert [len(sender.values()) for sender in answered] == [1, 1]
    costs = [one.end_ns - one.start_ns for one in lab.passes("acoustic")]
    assert costs == [7500] * 8 + [12000] * 8


def test_the_vocoder_is_one_pass_and_names_the_length_of_a_piece(lab: Lab) -> None:
    lab.configure("profile-diffusion")
    send = lab.load("emu_vocoder")
    [values] = send({"F0": np.ones((1, 18), np.float32), "EVENTS": text("")}).values()
    assert values["SPEECH"].tolist() == [[1500.0]]
    assert [one.members for one in lab.passes("vocoder")] == [1]


def test_known_delays_are_where_they_were_put(lab: Lab) -> None:
    delays = Delays(encoder_pass_ms=70.0, think_step_ms=1.35, admission_ms=2.0, build_ms=3.0)
    lab.configure("profile", delays=delays)
    [listened] = lab.load("emu_listen")(sound()).values()
    build = spans(listened)[0]
    assert build["end_ns"] - build["start_ns"] >= 5_000_000
    assert [one.end_ns - one.start_ns for one in lab.passes("listen")] == [100_000]
    [thought] = lab.load("emu_think")(heard()).values()
    queue = spans(thought)[1]
    assert queue["end_ns"] - queue["start_ns"] >= 2_000_000
    assert {one.end_ns - one.start_ns for one in lab.passes("think")} == {10_000}


def test_a_known_pass_for_others_is_in_front_of_the_first_step_alone(lab: Lab) -> None:
    lab.configure("profile", delays=Delays(others_encoder_ms=40.0, others_steps_ms=20.0))
    lab.load("emu_think")(heard()).values()
    [encoder], [step] = lab.passes("listen"), lab.passes("speak")
    thought = lab.passes("think")
    assert encoder.end_ns - encoder.start_ns == 40_000
    assert step.end_ns - step.start_ns == 20_000
    assert encoder.end_ns <= step.start_ns
    assert step.end_ns <= thought[0].start_ns
    assert len(thought) == 40
