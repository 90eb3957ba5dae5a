"""The small parts of the bridge: inbox, dead turns, calls, tensors."""

import threading

import numpy as np
import pytest

from python_backends.bridge import CancelTurn, Closed, Inbox, Wake, call
from python_backends.bridge.dead import KEEP_S, LIMIT, DeadTurns
from python_backends.bridge.tensors import text, to_tensors
from python_backends.errors import InvalidInput, Overloaded, StageFailed
from tests import fakes

IN = {"X": np.ones((1, 2), np.float32)}


def test_an_inbox_gives_all_that_is_there_in_order() -> None:
    inbox = Inbox()
    assert inbox.take(0) == []
    sent = [CancelTurn("a"), Wake(1), Closed()]
    for event in sent:
        inbox.put(event)
    assert inbox.take(None) == sent
    assert inbox.take(0.001) == []


def test_a_deadline_that_has_passed_is_no_error() -> None:
    inbox = Inbox()
    assert inbox.take(-1.0) == []
    inbox.put(Closed())
    assert inbox.take(-1.0) == [Closed()]


def test_an_inbox_wakes_who_waits_for_it() -> None:
    inbox = Inbox()
    threading.Timer(0.01, lambda: inbox.put(Closed())).start()
    assert inbox.take(None) == [Closed()]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_dead_turns_expire() -> None:
    clock = Clock()
    dead = DeadTurns(clock)
    dead.add("a")
    clock.now += KEEP_S - 1
    assert "a" in dead
    clock.now += 1
    assert "a" not in dead
    dead.add("b")
    assert ("b" in dead, len(dead)) == (True, 1)


def test_a_turn_cancelled_again_stays_dead_for_longer() -> None:
    clock = Clock()
    dead = DeadTurns(clock)
    dead.add("a")
    clock.now += KEEP_S - 1
    dead.add("b")
    dead.add("a")
    clock.now += 2
    assert "a" in dead


def test_dead_turns_are_bounded_and_the_oldest_goes_first() -> None:
    dead = DeadTurns(Clock())
    for number in range(LIMIT + 10):
        dead.add(str(number))
    assert len(dead) == LIMIT
    assert "9" not in dead
    assert "10" in dead
    assert 10 not in dead


def test_a_call_returns_copies_of_what_was_asked_for() -> None:
    result = np.arange(2.0)[None]
    seen: list[fakes.InferenceRequest] = []

    def model(request: fakes.InferenceRequest) -> fakes.InferenceResponse:
        seen.append(request)
        return fakes.answer(Y=result, Z=result)

    fakes.MODELS["step"] = model
    found = call("step", IN, ["Y", "Z"], turn="t")
    result[:] = -1
    assert found["Y"].tolist() == [[0, 1]]
    assert seen[0].request_id() == "t"
    assert seen[0].values()["X"].tolist() == [[1, 1]]
    assert seen[0].requested_output_names() == ["Y", "Z"]
    wanted = seen[0].preferred_memory
    assert wanted is not None
    assert wanted.kind == fakes.TRITONSERVER_MEMORY_CPU


def test_an_error_of_a_called_model_keeps_its_kind() -> None:
    wire = Overloaded("full", stage="step", retry_after_ms=7).to_wire()
    fakes.MODELS["step"] = lambda _: fakes.refusal(f"in model 'step': {wire}")
    with pytest.raises(Overloaded) as found:
        call("step", IN, ["Y"])
    assert (found.value.stage, found.value.retry_after_ms) == ("step", 7)


def test_foreign_errors_are_the_called_models_failure() -> None:
    fakes.MODELS["step"] = lambda _: fakes.refusal("onnx runtime error 2\nin node 7")
    with pytest.raises(StageFailed, match="onnx runtime error 2 in node 7") as found:
        call("step", IN, ["Y"], turn="t")
    assert (found.value.stage, found.value.turn) == ("step", "t")


def test_a_model_that_is_not_loaded_is_a_failure_and_no_bug() -> None:
    with pytest.raises(StageFailed, match="not ready"):
        call("absent", IN, ["Y"])


def test_an_answer_without_an_output_is_a_failure() -> None:
    fakes.MODELS["step"] = lambda _: fakes.answer(Z=np.zeros(1))
    with pytest.raises(StageFailed, match=r"without \['Y'\]"):
        call("step", IN, ["Y"])


def test_tensors_are_contiguous_and_text_is_bytes() -> None:
    [tensor] = to_tensors({"X": np.arange(6.0).reshape(2, 3).T})
    assert tensor.as_numpy().flags.c_contiguous
    assert text("h\u00e9", "").tolist() == [["h\u00e9".encode(), b""]]


def test_the_fake_sender_is_as_strict_as_the_real_one() -> None:
    sender = fakes.InferenceResponseSender()
    sender.send(flags=fakes.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    with pytest.raises(fakes.TritonModelException, match="closed"):
        sender.send(fakes.answer())
    assert InvalidInput.code == "INVALID_INPUT"
