"""The model class of every stage, with loops that work, fail, and fail to come back."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.bridge import (
    Arrived,
    CancelTurn,
    Closed,
    Inbox,
    ModelConfig,
    PlainBackend,
    Request,
    StageBackend,
    Wake,
)
from python_backends.bridge.backend import MAX_ORDER_CHARS
from python_backends.bridge.options import MAX_TURN_CHARS
from python_backends.bridge.request import MAX_INPUT_BYTES
from python_backends.errors import Cancelled, InvalidInput
from tests import fakes

ASK = {"X": np.ones((1, 1), np.float32)}


class Echo:
    """Answers, holds, or fails, as the request's X says; a cancel ends whom it holds."""

    def __init__(self, stage: "Stage") -> None:
        self.stage = stage
        self.held: list[Request] = []

    def run(self, inbox: Inbox) -> None:
        while True:
            for event in inbox.take(None):
                match event:
                    case Arrived(request):
                        self.serve(request)
                    case CancelTurn(turn):
                        self.stage.cancels.append(turn)
                        self.let_go(turn)
                    case Wake(news):
                        self.stage.news.append(news)
                    case Closed():
                        return

    def let_go(self, turn: str) -> None:
        for request in [one for one in self.held if one.turn == turn]:
            self.held.remove(request)
            request.fail(Cancelled("the turn was cancelled"))

    def serve(self, request: Request) -> None:
        self.stage.served.append(request.turn)
        match float(request.required("X").item()):
            case 0.0:
                raise ZeroDivisionError
            case 2.0:
                self.held.append(request)
                self.stage.holds.set()
            case _:
                request.finish({"Y": request.required("X")})


class Stage(StageBackend):
    def __init__(self) -> None:
        self.loops = 0
        self.allowed = 10**9
        self.cancels: list[str] = []
        self.news: list[Any] = []
        self.served: list[str] = []
        self.holds = threading.Event()

    def make_loop(self, config: ModelConfig) -> Echo:
        self.loops += 1
        if self.loops > self.allowed:
            raise OSError("the artefact is gone")
        return Echo(self)


@contextmanager
def serving(stage: Stage) -> Iterator[Callable[..., fakes.InferenceResponseSender]]:
    """A loaded stage as a function that sends it one request."""
    stage.initialize(fakes.model_args("think", {}))

    def ask(x: float = 1, turn: str = "t", **more: Any) -> fakes.InferenceResponseSender:
        inputs = more.pop("inputs", {"X": np.full((1, 1), x, np.float32)})
        native = fakes.arriving(inputs, request_id=turn, **more)
        stage.execute([native])
        return native.sender

    try:
        yield ask
    finally:
        stage.finalize()


def control(order: Any) -> dict[str, NDArray[Any]]:
    return {"CONTROL": fakes.text(order if isinstance(order, str) else json.dumps(order))}


def test_a_stage_answers_and_unloads() -> None:
    with serving(Stage()) as ask:
        assert ask(5).values()[0]["Y"].item() == 5


def test_a_probe_is_answered_without_the_loop() -> None:
    stage = Stage()
    with serving(stage) as ask:
        assert ask(inputs=control({"probe": True})).error() == ""
    assert stage.served == []


def test_a_stage_tells_the_time_and_whose_clock_it_is() -> None:
    stage = Stage()
    with serving(stage) as ask:
        before = time.monotonic_ns()
        [told] = ask(inputs=control({"clock": True})).values()
        after = time.monotonic_ns()
    assert set(told) == {"EVENTS"}
    assert told["EVENTS"].shape == (1, 1)
    entry = json.loads(told["EVENTS"][0, 0])
    assert before <= entry["start_ns"] == entry["end_ns"] <= after
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert entry["host"].startswith(boot)
    assert (entry["stage"], entry["turn"], entry["piece"]) == ("think", "", 0)
    assert entry["what"] == "clock"
    assert stage.served == []


@pytest.mark.parametrize(
    "order",
    [
        "",
        "{",
        "null",
        "[]",
        "{}",
        '{"cancel": ""}',
        '{"cancel": 5}',
        '{"cancel": null}',
        '{"probe": false}',
        '{"probe": 1}',
        '{"clock": 1}',
        '{"stop": true}',
        "[" * 4000,
    ],
)
def test_rubbish_orders_are_refused(order: str) -> None:
    stage = Stage()
    with serving(stage) as ask:
        refusal = ask(inputs=control(order)).error()
    assert "code=INVALID_INPUT" in refusal
    assert 'accepts {"cancel": turn id}' in refusal
    assert stage.cancels == []


def test_ids_and_orders_that_are_too_long_are_refused() -> None:
    stage = Stage()
    with serving(stage) as ask:
        assert ask(turn="x" * MAX_TURN_CHARS).error() == ""
        assert ask(inputs=control({"cancel": "é" * MAX_TURN_CHARS})).error() == ""
        long = ask(turn="x" * (MAX_TURN_CHARS + 1)).error()
        assert "code=INVALID_INPUT" in long
        assert "the request id has 257 characters; at most 256" in long
        assert len(long) < 300, "an id is not repeated whole"
        order = ask(inputs=control({"cancel": "x" * MAX_ORDER_CHARS})).error()
        assert f"characters; at most {MAX_ORDER_CHARS}" in order
    assert stage.served == ["x" * MAX_TURN_CHARS]


@pytest.mark.parametrize(
    "inputs",
    [
        {"X": np.zeros((1, MAX_INPUT_BYTES // 4 + 1), np.float32)},
        {"X": np.ones((1, 1), np.float32), "TEXT": fakes.text("x" * MAX_INPUT_BYTES)},
        {"CONTROL": fakes.text("x" * (MAX_INPUT_BYTES + 1))},
    ],
)
def test_inputs_that_are_too_large_are_refused(inputs: dict[str, NDArray[Any]]) -> None:
    stage = Stage()
    with serving(stage) as ask:
        error = ask(inputs=inputs).error()
        assert "code=INVALID_INPUT" in error
        assert f"at most {MAX_INPUT_BYTES} are accepted" in error
        assert ask(1).error() == ""
    assert len(stage.served) == 1


def test_two_orders_in_one_request_are_refused() -> None:
    with serving(Stage()) as ask:
        assert "INVALID_INPUT" in ask(inputs={"CONTROL": fakes.text("{}", "{}")}).error()


def test_a_cancel_reaches_the_loop_and_stragglers_of_the_turn_are_refused() -> None:
    stage = Stage()
    with serving(stage) as ask:
        held = ask(2, turn="dead")
        assert stage.holds.wait(fakes.WAIT_S)
        assert ask(turn="order", inputs=control({"cancel": "dead"})).error() == ""
        assert "code=CANCELLED" in held.error()
        straggler = ask(1, turn="dead")
        assert "code=CANCELLED" in straggler.error()
        assert ask(1, turn="alive").error() == ""
    assert stage.cancels == ["dead"]
    assert stage.served == ["dead", "alive"]


def test_wrong_parameters_are_answered_and_never_reach_the_loop() -> None:
    stage = Stage()
    with serving(stage) as ask:
        assert "code=INVALID_INPUT" in ask(parameters={"what": 1}).error()
    assert stage.served == []


def test_one_bad_request_does_not_harm_the_others_of_its_batch() -> None:
    """Public cases F4 and F5."""
    stage = Stage()
    with serving(stage):
        batch = [
            fakes.arriving(ASK, request_id="good"),
            fakes.arriving(ASK, request_id="bad", parameters={"steps": -1}),
            fakes.arriving(ASK, request_id="fine"),
        ]
        batch[1]._parameters = "no JSON at all"
        stage.execute(batch)
        errors = [native.sender.error() for native in batch]
    assert errors[0] == errors[2] == ""
    assert "code=STAGE_FAILED" in errors[1]
    assert any("accepting a request failed" in message for _, message in fakes.Logger.lines)


def test_a_loop_that_fails_answers_everybody_and_a_fresh_one_goes_on() -> None:
    stage = Stage()
    with serving(stage) as ask:
        held = ask(2, turn="held")
        assert stage.holds.wait(fakes.WAIT_S)
        guilty = ask(0, turn="guilty")
        for sender in (held, guilty):
            assert "code=STAGE_FAILED stage=think" in sender.error()
            assert sender.finals == 1
        assert ask(3, turn="next").values()[0]["Y"].item() == 3
    assert stage.loops == 2
    assert any("ZeroDivisionError" in message for _, message in fakes.Logger.lines)


def test_a_fresh_loop_gets_neither_dead_requests_nor_the_old_ones_news() -> None:
    stage = Stage()
    with serving(stage) as ask:
        old = stage._inbox
        with stage._lock:  # so that all three are taken by one loop, in one batch
            natives = [fakes.arriving({"X": np.zeros((1, 1), np.float32)})]
            requests = [Request(native, "think", stage._ended) for native in natives]
            stage._open.update(requests)
            for request in requests:
                old.put(Arrived(request))
            old.put(Wake("from the old loop"))
            old.put(CancelTurn("somebody"))
        natives[0].sender.wait()
        old.put(Wake("later, from a worker of the old loop"))
        assert ask(1).error() == ""
    assert stage.news == []
    assert stage.loops == 2


def test_a_stage_that_cannot_come_back_refuses_instead_of_hanging() -> None:
    stage = Stage()
    stage.allowed = 1
    with serving(stage) as ask:
        assert "code=STAGE_FAILED" in ask(0).error()
        stage._thread.join(fakes.WAIT_S)
        assert "could not be restarted" in ask(1).error()
        for order in ("probe", "clock"):
            assert "could not be restarted" in ask(inputs=control({order: True})).error()


def test_a_failing_loop_under_many_callers_answers_each_of_them_once() -> None:
    """Public case F5."""
    stage = Stage()
    senders: list[fakes.InferenceResponseSender] = []
    with serving(stage) as ask:
        for number in range(300):
            x = 0 if number % 7 == 3 else 2 if number % 5 == 1 else 1
            senders.append(ask(x, turn=f"t{number}"))
        for number in range(300):
            ask(turn="order", inputs=control({"cancel": f"t{number}"}))
        for sender in senders:
            sender.wait()
    assert [sender.finals for sender in senders] == [1] * 300
    assert stage.loops == 1 + sum(
        "ZeroDivisionError" in message for _, message in fakes.Logger.lines
    )
    assert not stage._open


def test_a_loop_that_fails_while_the_model_unloads_does_not_hold_it() -> None:
    stage = Stage()

    class Clumsy(Echo):
        def let_go(self, turn: str) -> None:
            raise ZeroDivisionError

    with serving(stage) as ask:
        stage.make_loop = lambda config: Clumsy(stage)  # type: ignore[method-assign]
        assert ask(0).error()
        with stage._lock:
            stage._inbox.put(CancelTurn("somebody"))
    assert not stage._thread.is_alive()


class Doubler(PlainBackend):
    def load(self, config: ModelConfig) -> None:
        self.loaded = config.name

    def serve(self, inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        if "X" not in inputs:
            raise InvalidInput("input X is missing")
        return {"Y": 1 / inputs["X"] if inputs["X"].all() else inputs["Z"]}


def test_a_plain_model_answers_each_request_of_a_batch_by_itself() -> None:
    """Public case F5."""
    model = Doubler()
    model.initialize(fakes.model_args("vad", {}))
    half, missing, broken = model.execute(
        [
            fakes.arriving({"X": np.full((1, 1), 2.0)}),
            fakes.arriving({}),
            fakes.arriving({"X": np.zeros((1, 1))}),
        ]
    )
    assert half.output_tensors()[0].as_numpy().item() == 0.5
    assert "code=INVALID_INPUT stage=vad turn=turn-1" in missing.error().message()
    assert "code=STAGE_FAILED" in broken.error().message()
    assert "KeyError" not in broken.error().message()
    assert any("KeyError" in message for _, message in fakes.Logger.lines)
