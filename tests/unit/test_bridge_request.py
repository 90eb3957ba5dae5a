"""A request is answered any number of times and ended exactly once, whatever happens."""

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from python_backends.bridge import Request, span
from python_backends.bridge.request import _CODES
from python_backends.errors import (
    Cancelled,
    DeadlineMissed,
    InvalidInput,
    Overloaded,
    StageError,
    StageFailed,
    parse,
)
from tests import fakes
from tests.fakes import WAIT_S

OUT = {"Y": np.ones((1, 2), np.float32)}


def opened(
    native: fakes.InferenceRequest | None = None, ended: list[Request] | None = None
) -> tuple[Request, fakes.InferenceResponseSender]:
    native = native or fakes.arriving({})
    log = ended if ended is not None else []
    return Request(native, "think", log.append), native.sender


def test_a_finished_request_ignores_whatever_comes_after() -> None:
    ended: list[Request] = []
    request, sender = opened(ended=ended)
    request.send(OUT)
    request.finish(OUT)
    for late in (
        lambda: request.send(OUT),
        lambda: request.finish(),
        lambda: request.acknowledge(),
        lambda: request.fail(StageFailed("late")),
    ):
        late()
    assert (len(sender.responses), sender.finals, ended) == (2, 1, [request])
    assert not request.is_open


class Slow(fakes.InferenceResponseSender):
    """Takes its time to say whether the caller is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = threading.Event(), threading.Event()

    def is_cancelled(self) -> bool:
        self.asked.set()
        assert self.answers.wait(WAIT_S)
        return super().is_cancelled()


def test_the_last_response_waits_for_who_asks_whether_the_caller_is_gone() -> None:
    sender = Slow()
    native = fakes.arriving({})
    native.sender = sender
    request, _ = opened(native)
    request.poll_interval_s = 0.0
    with ThreadPoolExecutor(2) as threads:
        asking = threads.submit(lambda: request.cancelled)
        assert sender.asked.wait(WAIT_S)
        ending = threads.submit(request.finish, OUT)
        with pytest.raises(TimeoutError):
            ending.result(timeout=0.05)
        assert not sender.finals
        sender.answers.set()
        assert asking.result(WAIT_S) is False
        ending.result(WAIT_S)
    assert sender.finals == 1
    assert not request.cancelled, "and nobody asks after it"


class Pruning(fakes.InferenceResponseSender):
    """Drops the tensors of a response that is sent, as the stub does with those that nobody asked
    for, and notes whether they were still held by somebody."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[bool] = []

    def send(self, response: fakes.InferenceResponse | None = None, flags: int = 0) -> None:
        super().send(response, flags)
        if response is not None:
            dropped = [weakref.ref(tensor) for tensor in response.output_tensors()]
            response.output_tensors().clear()
            self.held.append(all(one() is not None for one in dropped))


@pytest.mark.parametrize("end", [Request.send, Request.finish])
def test_the_stub_never_drops_the_last_reference_to_an_output(
    end: Callable[[Request, dict[str, Any]], None],
) -> None:
    native = fakes.arriving({})
    native.sender = Pruning()
    end(Request(native, "think", lambda request: None), OUT | {"Z": np.zeros(1)})
    assert native.sender.held == [True]


def test_a_request_may_end_without_a_last_response() -> None:
    request, sender = opened()
    request.finish()
    assert (sender.responses, sender.finals) == ([], 1)


def test_threads_that_race_for_the_end_end_it_once() -> None:
    for _ in range(50):
        ended: list[Request] = []
        request, sender = opened(ended=ended)
        start = threading.Barrier(6)

        def race(at: int, request: Request = request, start: threading.Barrier = start) -> None:
            start.wait(fakes.WAIT_S)
            request.send(OUT)
            request.finish(OUT) if at % 2 else request.fail(Cancelled("gone"))

        threads = [threading.Thread(target=race, args=(at,)) for at in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (sender.finals, ended) == (1, [request])


def test_outputs_that_are_no_tensors_leave_the_request_open_for_an_error() -> None:
    request, sender = opened()
    with pytest.raises(ValueError, match="inhomogeneous"):
        request.finish({"Y": [[1], [1, 2]]})  # type: ignore[dict-item]
    assert request.is_open
    request.fail(StageFailed("bad outputs"))
    assert "bad outputs" in sender.error()


class FullSender(fakes.InferenceResponseSender):
    """A server without room for tensors."""

    def send(self, response: fakes.InferenceResponse | None = None, flags: int = 0) -> None:
        if response is not None and response.output_tensors():
            raise fakes.TritonModelException("Failed to increase the shared memory pool size")
        super().send(response, flags)


def test_an_answer_the_server_cannot_take_becomes_an_error_and_not_silence() -> None:
    native = fakes.arriving({})
    native.sender = FullSender()
    request, sender = opened(native)
    with pytest.raises(StageFailed, match="could not be sent"):
        request.send(OUT)
    request.finish(OUT)
    assert sender.finals == 1
    assert "shared memory" in sender.error()


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (InvalidInput, "INVALID_ARG"),
        (Overloaded, "UNAVAILABLE"),
        (DeadlineMissed, "UNAVAILABLE"),
        (Cancelled, "CANCELLED"),
        (StageFailed, "INTERNAL"),
        (StageError, "INTERNAL"),
    ],
)
def test_errors_have_tritons_codes_and_our_grammar(kind: type[StageError], code: str) -> None:
    request, sender = opened()
    request.fail(kind("no"))
    fault = sender.responses[0].error()
    assert fault is not None
    assert fault.code() == code
    found = parse(fault.message())
    assert found is not None
    assert (type(found), found.stage, found.turn) == (kind, "think", "turn-1")
    assert set(_CODES) < set(StageError.__subclasses__())


def test_one_error_of_a_whole_batch_names_each_turn_rightly() -> None:
    error = StageFailed("the batch failed", stage="think_step")
    turns = []
    for name in ("a", "b"):
        request, sender = opened(fakes.arriving({}, request_id=name))
        request.fail(error)
        found = parse(sender.error())
        assert found is not None
        turns.append((found.turn, found.stage))
    assert turns == [("a", "think_step"), ("b", "think_step")]


@pytest.mark.parametrize(
    "events",
    [b"", b"{", b"[1]", b'{"turn": null}', b'{"turn": 5}', b"\xff", b"[" * 100_000],
)
def test_rubbish_in_events_gives_the_turn_an_id_of_its_own(events: bytes) -> None:
    tensor = np.array([[events]], dtype=np.object_)
    requests = [opened(fakes.arriving({"EVENTS": tensor}, request_id=""))[0] for _ in range(2)]
    assert all(request.turn for request in requests)
    assert requests[0].turn != requests[1].turn


def test_a_request_without_id_bears_the_one_in_its_events() -> None:
    events = np.array([[span("encode", "turn-7", "build", 1, 2)]], dtype=np.object_)
    request, _ = opened(fakes.arriving({"EVENTS": events}, request_id=""))
    assert request.turn == "turn-7"
    grown = request.with_events(request.span("compute", 3, 4, members=2))
    assert grown.shape == (1, 2)
    assert grown[0, 0] == events[0, 0]
    assert b'"stage":"think","turn":"turn-7"' in grown[0, 1]


def test_events_begin_where_there_were_none() -> None:
    request, _ = opened()
    assert request.with_events().shape == (1, 0)
    assert request.with_events(b"x").tolist() == [[b"x"]]


def test_inputs_outlive_the_servers_buffers() -> None:
    buffer = np.ones((1, 3), np.float32)
    request, _ = opened(fakes.arriving({"AUDIO": buffer}))
    buffer[:] = 0
    assert request.required("AUDIO").tolist() == [[1, 1, 1]]
    found = request.array("AUDIO")
    assert found is not None
    assert (found.shape, found.dtype, found.device) == ((1, 3), np.float32, "cpu")


def test_a_missing_input_is_named() -> None:
    request, _ = opened()
    assert request.optional("AUDIO") is None
    with pytest.raises(InvalidInput, match="AUDIO is missing"):
        request.required("AUDIO")
    assert request.text("HISTORY", default="") == ""


@pytest.mark.parametrize(
    ("values", "fault"),
    [([[b"a", b"b"]], "2 strings"), ([[]], "0 strings"), ([[b"\xff\xfe"]], "not UTF-8")],
)
def test_text_is_one_utf8_string(values: list[Any], fault: str) -> None:
    request, _ = opened(fakes.arriving({"TEXT": np.array(values, dtype=np.object_)}))
    with pytest.raises(InvalidInput, match=fault):
        request.text("TEXT")


def test_a_caller_who_is_gone_is_noticed_and_stays_gone() -> None:
    request, sender = opened()
    sender.cancelled = True
    assert request.cancelled
    sender.cancelled = False
    assert request.cancelled


def test_a_wrong_parameter_is_found_when_parsed_and_not_before() -> None:
    request, sender = opened(fakes.arriving({}, parameters={"steps": 99}))
    with pytest.raises(InvalidInput, match="steps") as found:
        request.parse_options()
    request.fail(found.value)
    assert "code=INVALID_INPUT stage=think turn=turn-1" in sender.error()
