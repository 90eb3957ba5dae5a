"""`think` by an LLM that is served elsewhere: its pieces, its errors, and who is let in."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Request
from python_backends.bridge.meters import Tally
from python_backends.errors import StageError, parse
from python_backends.served_llm.loop import ServedLoop
from python_backends.served_llm.model import TritonPythonModel
from python_backends.served_llm.places import Places
from python_backends.served_llm.settings import ServedSettings
from tests import fakes
from tests.unit.fake_llm import (
    NAME,
    WAIT_S,
    Call,
    FakeLlm,
    Script,
    one_piece_then_silence,
    serving,
    two_pieces,
)

SECRET = "sk-very-secret"
SETTINGS = ServedSettings(
    base_url="http://127.0.0.1:1/v1",
    model="",
    api_key_env="",
    system="Be brief.",
    max_open=2,
    max_waiting=1,
    max_new_tokens=100,
    connect_ms=500,
    silence_ms=5000,
)


class Bench:
    """A stage in front of a scripted endpoint."""

    def __init__(self, settings: ServedSettings, llm: FakeLlm | None) -> None:
        self._llm = llm
        self.inbox = Inbox()
        self.meters = Tally()
        self.told: list[Any] = []
        self.faults: list[Exception] = []
        self.loop = ServedLoop(settings, settings.system, SECRET, self.meters)
        self.ended: list[Request] = []

    @property
    def llm(self) -> FakeLlm:
        assert self._llm is not None
        return self._llm

    def ask(
        self, heard: str = "two burgers", turn: str = "t", inputs: Any = None, **options: Any
    ) -> fakes.InferenceResponseSender:
        tensors = {"HEARD": fakes.text(heard), **(inputs or {})}
        native = fakes.arriving(tensors, request_id=turn, parameters=options)
        request = Request(native, "think", self.ended.append)
        request.parse_options()
        self.inbox.put(Arrived(request))
        return native.sender

    def run(self) -> None:
        try:
            self.loop.run(self.inbox)
        except Exception as fault:
            self.faults.append(fault)

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline, "it never came true"
            time.sleep(0.005)

    def slots(self) -> dict[str, float]:
        self.told += self.meters.take()
        return {
            dict(labels)["state"]: value for name, labels, value in self.told if name == "slots"
        }


@contextmanager
def opened(script: Script = two_pieces, **changed: Any) -> Iterator[Bench]:
    with serving(script) as (llm, url), running(llm, base_url=url, **changed) as bench:
        yield bench


@contextmanager
def running(llm: FakeLlm | None, **changed: Any) -> Iterator[Bench]:
    bench = Bench(replace(SETTINGS, **changed), llm)
    thread = threading.Thread(target=bench.run)
    thread.start()
    try:
        yield bench
    finally:
        bench.inbox.put(Closed())
        thread.join()
        bench.loop.places.check_integrity()
        assert bench.loop.places.taken == 0
        assert bench.faults == []


def error_of(sender: fakes.InferenceResponseSender) -> StageError:
    found = parse(sender.error())
    assert found is not None
    assert sender.finals == 1
    for secret in (SECRET, "127.0.0.1", "localhost"):
        assert secret not in sender.error()
    return found


def line(values: Any, name: str) -> str:
    return bytes(values[name][0, 0]).decode()


def answering(status: int, text: str = "{}", **headers: str) -> Script:
    async def script(call: Call) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(
            status=status, text=text, headers=named, content_type="application/json"
        )

    return script


def test_an_answer_leaves_clause_by_clause() -> None:
    with opened() as bench:
        first, second, last = bench.ask("  two burgers ").values()
    assert [line(one, "TEXT") for one in (first, second, last)] == [
        "Two burgers,",
        "coming right up.",
        "Anything else?",
    ]
    assert [one["PIECE"].tolist() for one in (first, second, last)] == [
        [[0, 0, 0]],
        [[1, 0, 0]],
        [[2, 0, 2]],
    ]
    assert [line(one, "HEARD") for one in (first, second, last)] == ["two burgers", "", ""]
    assert [line(one, "STATUS") for one in (first, second, last)] == ["", "", "stop"]
    assert [one["PIECE"].dtype for one in (first, last)] == [np.int32, np.int32]


def test_a_piece_has_left_while_the_endpoint_is_still_thinking() -> None:
    piece_is_out = threading.Event()

    async def script(call: Call) -> None:
        await call.say("One moment, ")
        assert await asyncio.to_thread(piece_is_out.wait, WAIT_S)
        await call.say("please.")
        await call.end()

    with opened(script) as bench:
        sender = bench.ask()
        bench.until(lambda: len(sender.responses) == 1)
        piece_is_out.set()
        assert len(sender.values()) == 2


def test_the_spans_tell_of_the_first_token_and_of_each_piece() -> None:
    given = json.dumps({"stage": "encode", "turn": "t", "what": "queue"})
    with opened() as bench:
        before = time.monotonic_ns()
        values = bench.ask(inputs={"EVENTS": fakes.text(given)}).values()
    spans = [[json.loads(row) for row in one["EVENTS"].flat] for one in values]
    assert [[one["what"] for one in each] for each in spans] == [
        ["queue", "first_token", "compute"],
        ["queue", "compute"],
        ["queue", "compute"],
    ]
    _, first, own = spans[0]
    assert before < first["start_ns"] < first["end_ns"] == own["start_ns"] <= own["end_ns"]
    assert {one["stage"] for each in spans for one in each[1:]} == {"think"}


def test_the_endpoint_is_sent_the_conversation_and_the_options() -> None:
    history = [{"role": "user", "text": "Hello."}, {"role": "assistant", "text": "Welcome!"}]
    trace = "00-11111111111111111111111111111111-2222222222222222-01"
    with opened() as bench:
        sender = bench.ask(
            inputs={"HISTORY": fakes.text(json.dumps(history)), "SESSION_ID": fakes.text("s")},
            temperature="0.5",
            seed=9,
            max_tokens=7,
            traceparent=trace,
        )
        assert not sender.error()
        bench.ask().wait()
        [call, _] = bench.llm.calls
        assert bench.llm.listed == 1
    assert call.headers["Authorization"] == f"Bearer {SECRET}"
    assert call.headers["traceparent"] == trace
    assert call.body == {
        "model": NAME,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": "Welcome!"},
            {"role": "user", "content": "two burgers"},
        ],
        "stream": True,
        "max_tokens": 7,
        "temperature": 0.5,
        "top_p": 1.0,
        "top_k": 40,
        "seed": 9,
    }


@pytest.mark.parametrize(("keep_ms", "connections"), [(0, 3), (5000, 1)])
def test_each_answer_has_a_connection_of_its_own_unless_they_are_kept(
    keep_ms: int, connections: int
) -> None:
    with opened(keep_ms=keep_ms) as bench:
        for _ in range(3):
            assert not bench.ask().error()
            bench.until(lambda: bench.loop.places.taken == 0)
        assert len(bench.llm.connections) == connections


def test_a_model_that_is_named_is_not_asked_for() -> None:
    with opened(model="mine") as bench:
        bench.ask().wait()
        assert (bench.llm.listed, bench.llm.asked[0]["model"]) == (0, "mine")


@pytest.mark.parametrize("heard", ["", "  \n"])
def test_nothing_heard_is_answered_without_asking(heard: str) -> None:
    with opened() as bench:
        [values] = bench.ask(heard).values()
        assert bench.llm.calls == []
    assert (line(values, "TEXT"), line(values, "STATUS")) == ("", "no_speech")
    assert values["PIECE"].tolist() == [[0, 0, 6]]


def test_an_answer_in_one_piece_is_one_piece() -> None:
    with opened() as bench:
        [values] = bench.ask(stream=False).values()
    assert line(values, "TEXT") == "Two burgers, coming right up. Anything else?"


def test_an_answer_that_was_cut_says_so() -> None:
    async def script(call: Call) -> None:
        await call.say("Two bur")
        await call.end("length")

    with opened(script) as bench:
        [values] = bench.ask().values()
    assert (line(values, "TEXT"), line(values, "STATUS")) == ("Two bur", "length")


def test_an_answer_ends_before_its_stop_string_though_the_endpoint_goes_on() -> None:
    async def script(call: Call) -> None:
        await call.say("Two burgers. E", "N", "D and more. ")
        await call.until_gone()

    with opened(script) as bench:
        values = bench.ask(stop='["END"]').values()
        assert bench.llm.calls[0].body["stop"] == ["END"]
        assert bench.llm.calls[0].gone.wait(WAIT_S)
    assert [line(one, "TEXT") for one in values] == ["Two burgers.", ""]
    assert line(values[-1], "STATUS") == "stop"


def test_an_endpoint_that_does_not_keep_to_the_limit_is_cut() -> None:
    async def script(call: Call) -> None:
        while True:
            await call.say("more and more " * 10)

    with opened(script) as bench:
        values = bench.ask(max_tokens=2).values()
        assert bench.llm.calls[0].gone.wait(WAIT_S)
    assert line(values[-1], "STATUS") == "length"


def test_a_cancelled_turn_closes_its_connection_and_no_other() -> None:
    go_on = threading.Event()

    async def script(call: Call) -> None:
        await call.say("One, ")
        if call.body["messages"][-1]["content"] == "cancelled":
            await call.until_gone()
        assert await asyncio.to_thread(go_on.wait, WAIT_S)
        await call.end()

    with opened(script) as bench:
        cancelled, other = bench.ask("cancelled", "a"), bench.ask("other", "b")
        bench.until(lambda: bool(cancelled.responses and other.responses))
        bench.inbox.put(CancelTurn("a"))
        assert error_of(cancelled).code == "CANCELLED"
        [call] = [one for one in bench.llm.calls if one.body["messages"][-1]["content"] != "other"]
        assert call.gone.wait(WAIT_S)
        go_on.set()
        assert not other.error()
    assert cancelled.finals == 1


def test_a_turn_is_cancelled_before_the_endpoint_has_answered_at_all() -> None:
    async def script(call: Call) -> None:
        await call.until_gone()

    with opened(script) as bench:
        sender = bench.ask()
        assert bench.llm.arrived.acquire(timeout=WAIT_S)
        bench.inbox.put(CancelTurn("t"))
        assert error_of(sender).code == "CANCELLED"
        assert bench.llm.calls[0].gone.wait(WAIT_S)


def test_a_caller_that_leaves_closes_the_connection() -> None:
    with opened(one_piece_then_silence) as bench:
        sender = bench.ask()
        bench.until(lambda: bool(sender.responses))
        sender.cancelled = True
        assert bench.llm.calls[0].gone.wait(WAIT_S)
        assert "the caller has left" in error_of(sender).message


def test_a_deadline_closes_the_connection() -> None:
    with opened(one_piece_then_silence, model="m") as bench:
        sender = bench.ask(deadline_ms=500)
        assert error_of(sender).code == "DEADLINE_MISSED"
        assert bench.llm.calls[0].gone.wait(WAIT_S)


def test_an_endpoint_that_falls_silent_has_failed_though_it_keeps_the_line_open() -> None:
    async def script(call: Call) -> None:
        await call.say("One, ")
        for _ in range(400):
            await call.raw(b": still here\n\n")
            await asyncio.sleep(0.01)

    with opened(script, silence_ms=500, model="m") as bench:
        sender = bench.ask()
        error = error_of(sender)
        assert (error.code, error.message) == (
            "STAGE_FAILED",
            "the LLM's endpoint has sent nothing for 500 ms",
        )
        assert bench.llm.calls[0].gone.wait(WAIT_S)


@pytest.mark.parametrize("how", ["abort", "end", "before"])
def test_an_answer_that_breaks_off_is_an_error(how: str) -> None:
    async def script(call: Call) -> None:
        if how != "before":
            await call.say("Two burgers, ", "and")
        if how != "end":
            call.break_off()

    with opened(script) as bench:
        sender = bench.ask()
        error = error_of(sender)
        assert (error.code, error.message) == (
            "STAGE_FAILED",
            "the LLM's endpoint has broken off its answer",
        )
        assert len(bench.llm.calls) == 1, "nothing is sent twice"


def test_an_error_within_the_stream_is_typed() -> None:
    async def script(call: Call) -> None:
        await call.say("Two burgers, ")
        await call.event({"error": {"message": "out of memory", "code": 500}})

    with opened(script) as bench:
        assert error_of(bench.ask()).code == "STAGE_FAILED"


def test_what_is_no_event_stream_is_refused() -> None:
    with opened(answering(200)) as bench:
        assert "application/json" in error_of(bench.ask()).message


def test_an_endpoint_without_room_says_when_to_come_back() -> None:
    with opened(answering(429, Retry_After="2")) as bench:
        error = error_of(bench.ask())
        assert (error.code, error.reason, error.retry_after_ms) == ("OVERLOADED", "stage", 2000)
        bench.llm.script = answering(503)
        assert error_of(bench.ask()).retry_after_ms == 500
        bench.llm.script = two_pieces
        assert not bench.ask().error()


def test_what_the_endpoint_refuses_is_told_without_secrets() -> None:
    async def script(call: Call) -> web.Response:
        message = f"context is 1024, {SECRET} of http://{call.headers['Host']}/v1 sent more"
        return web.json_response({"error": {"message": message}}, status=400)

    with opened(script) as bench:
        error = error_of(bench.ask())
    assert error.code == "INVALID_INPUT"
    assert "context is 1024, *** of *** sent more" in error.message


@pytest.mark.parametrize("status", [401, 403, 404, 500, 502, 307])
def test_other_refusals_are_failures_that_quote_nothing(status: int) -> None:
    script = answering(status, json.dumps({"error": {"message": "quoted"}}), Location="/elsewhere")
    with opened(script) as bench:
        error = error_of(bench.ask())
    assert error.code == "STAGE_FAILED"
    assert str(status) in error.message
    assert "quoted" not in error.message


def test_a_refusal_that_comes_in_parts_is_told_whole() -> None:
    async def script(call: Call) -> web.StreamResponse:
        response = web.StreamResponse(status=400)
        await response.prepare(call.request)
        for part in (b'{"error": {"mess', b'age": "too', b' long"}}'):
            await response.write(part)
            await asyncio.sleep(0.02)
        return response

    with opened(script) as bench:
        assert "too long" in error_of(bench.ask()).message


def test_all_who_need_the_name_of_the_model_ask_for_it_once() -> None:
    with opened(silence_ms=200, max_open=8) as bench:
        bench.llm.hangs = True
        senders = [bench.ask(turn=f"t{number}") for number in range(8)]
        assert {error_of(one).message for one in senders} == {
            "the LLM's endpoint has sent nothing for 200 ms"
        }
        assert bench.llm.listed == 1
        bench.llm.hangs = False
        assert not bench.ask().error()
        assert bench.llm.listed == 2


def test_one_of_them_may_be_cancelled_and_the_stage_be_closed_meanwhile() -> None:
    with opened() as bench:
        bench.llm.hangs = True
        first, second = bench.ask(turn="a"), bench.ask(turn="b")
        bench.until(lambda: bench.llm.listed == 1)
        bench.inbox.put(CancelTurn("a"))
        assert error_of(first).code == "CANCELLED"
        assert not second.ended.is_set()
    assert error_of(second).code == "CANCELLED"


def test_an_endpoint_that_was_started_with_another_model_is_asked_for_its_name_again() -> None:
    with opened(answering(404)) as bench:
        assert "no such model" in error_of(bench.ask()).message
        bench.llm.script = two_pieces
        assert not bench.ask().error()
        assert bench.llm.listed == 2


def test_an_endpoint_that_is_not_there_is_a_failure_and_may_come_back() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with running(None, base_url=f"http://127.0.0.1:{port}/v1") as bench:
            error = error_of(bench.ask())
            assert (error.code, error.message) == (
                "STAGE_FAILED",
                "the LLM's endpoint cannot be reached",
            )
            assert not error_of(bench.ask()).retry_after_ms


@pytest.mark.parametrize(
    ("inputs", "options", "named"),
    [
        ({"HISTORY": fakes.text("{")}, {}, "HISTORY"),
        ({"SESSION_ID": fakes.text("x" * 257)}, {}, "SESSION_ID"),
        ({"HEARD": fakes.text("x" * 20_000)}, {}, "HEARD"),
        ({}, {"top_k": 3}, "top_k"),
    ],
)
def test_bad_input_fails_alone(inputs: Any, options: Any, named: str) -> None:
    with opened(extensions=False) as bench:
        error = error_of(bench.ask(inputs=inputs, **options))
        assert (error.code, named in error.message) == ("INVALID_INPUT", True)
        assert not bench.ask().error()


def test_so_many_are_asked_for_at_once_so_many_wait_and_the_next_is_refused() -> None:
    go_on = threading.Event()

    async def script(call: Call) -> None:
        assert await asyncio.to_thread(go_on.wait, WAIT_S)
        await two_pieces(call)

    with opened(script) as bench:
        senders = [bench.ask(turn=f"t{number}") for number in range(3)]
        bench.until(lambda: bench.slots() == {"running": 2, "waiting": 1, "free": 0})
        bench.until(lambda: len(bench.llm.calls) == 2)
        error = error_of(bench.ask(turn="more"))
        assert (error.code, error.reason) == ("OVERLOADED", "queue")
        assert error.retry_after_ms
        assert len(bench.llm.calls) == 2
        go_on.set()
        assert not any(sender.error() for sender in senders)
        bench.until(lambda: bench.slots() == {"running": 0, "waiting": 0, "free": 2})
    waits = [value for name, _, value in bench.told if name == "queue_seconds"]
    assert len(waits) == 3


def test_who_waits_may_be_cancelled_or_be_late_and_takes_no_place() -> None:
    with opened(one_piece_then_silence, max_open=1, max_waiting=2) as bench:
        first = bench.ask(turn="first")
        bench.until(lambda: bool(first.responses))
        late, cancelled = bench.ask(turn="late", deadline_ms=50), bench.ask(turn="cancelled")
        bench.until(lambda: bench.loop.places.waiting == 2)
        bench.inbox.put(CancelTurn("cancelled"))
        assert error_of(cancelled).code == "CANCELLED"
        assert error_of(late).code == "DEADLINE_MISSED"
        bench.inbox.put(CancelTurn("first"))
        assert error_of(first).code == "CANCELLED"
        bench.llm.script = two_pieces
        assert not bench.ask().error()


def test_callers_take_turns() -> None:
    async def scenario() -> list[str]:
        places, served = Places(1, 9, time.monotonic), list[str]()

        async def come(caller: str, name: str) -> None:
            async with places.one(caller):
                served.append(name)
                await asyncio.sleep(0)

        names = [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1")]
        await asyncio.gather(*(come(caller, name) for caller, name in names))
        places.check_integrity()
        assert (places.taken, places.waiting) == (0, 0)
        return served

    assert asyncio.run(scenario()) == ["a1", "a2", "b1", "a3"]


def test_a_place_given_to_one_who_is_cancelled_at_that_moment_is_not_lost() -> None:
    async def scenario() -> None:
        places = Places(1, 9, time.monotonic)
        release = asyncio.Event()

        async def hold() -> None:
            async with places.one("a"):
                await release.wait()

        holders = [asyncio.create_task(hold()) for _ in range(3)]
        await asyncio.sleep(0)
        release.set()
        await asyncio.sleep(0)  # the first one leaves, and gives its place to the second
        holders[1].cancel()
        await asyncio.gather(*holders, return_exceptions=True)
        places.check_integrity()
        assert (places.taken, places.waiting) == (0, 0)

    asyncio.run(scenario())


def test_the_end_of_the_stage_ends_what_is_open() -> None:
    with opened(one_piece_then_silence) as bench:
        sender = bench.ask()
        bench.until(lambda: bool(sender.responses))
    assert error_of(sender).code == "CANCELLED"


PARAMETERS = {
    "base_url": "http://127.0.0.1:1/v1",
    "model": "",
    "api_key_env": "",
    "system": "",
    "max_open": "2",
    "max_waiting": "2",
    "max_new_tokens": "64",
}


def loaded(**parameters: str) -> TritonPythonModel:
    made = TritonPythonModel()
    inputs = ("HEARD", "HISTORY", "SESSION_ID", "EVENTS", "CONTROL")
    made.initialize(fakes.model_args("think", {**PARAMETERS, **parameters}, inputs=inputs))
    return made


def test_a_probe_is_answered_though_no_endpoint_is_there() -> None:
    model = loaded()
    try:
        lost = fakes.arriving({"HEARD": fakes.text("hello")})
        probe = fakes.arriving({"CONTROL": fakes.text('{"probe": true}')}, request_id="p")
        model.execute([lost, probe])
        assert not probe.sender.error()
        assert error_of(lost.sender).code == "STAGE_FAILED"
    finally:
        model.finalize()


def test_the_environment_says_where_the_endpoint_is_and_holds_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(two_pieces) as (llm, url):
        monkeypatch.setenv("TRISTAGE_LLM_URL", url)
        monkeypatch.setenv("MY_KEY", f"{SECRET}\n")
        model = loaded(api_key_env="MY_KEY")
        try:
            asked = fakes.arriving({"HEARD": fakes.text("hello")})
            model.execute([asked])
            assert len(asked.sender.values()) == 3
        finally:
            model.finalize()
        assert llm.calls[0].headers["Authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize("value", ["", "sk\nsecret", "schlüssel"])
def test_a_key_that_is_not_there_or_cannot_be_sent_is_refused_at_load(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(ValueError, match="MY_KEY"):
        loaded(api_key_env="MY_KEY")
