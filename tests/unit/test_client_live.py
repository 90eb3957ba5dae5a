"""The client of live calls against a gRPC server that answers as `live` would, or must not."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from client.live import BlockingLiveClient, LiveCall, LiveClient
from client.live import call as call_module
from client.turns import TurnOptions, Utterance
from python_backends.errors import Cancelled, InvalidInput, Overloaded, StageFailed
from tests.unit.fake_live import (
    RATE_HZ,
    Answering,
    chunk_failed,
    closed,
    event,
    flag,
    given,
    listened,
    quiet,
    with_call,
)
from tests.unit.fake_triton import WAIT_S, FakeServer, Message, Script, message, serving, texts

CHUNK = bytes(200)


async def rest_of(call: LiveCall) -> list[str]:
    return [event.type async for event in call]


def test_events_come_in_order_until_the_call_is_closed() -> None:
    """Public case F8: the one end marker is that of the first request."""

    def script(request: Any, context: Any) -> Iterator[Message]:
        yield from listened(request)
        if flag(request, "start"):
            yield event(request, "speech_started", turn="c.1", at_ms=40)
        elif flag(request, "end"):
            yield event(request, "transcript", turn="c.1", text="Two burgers.")
            yield event(
                request, "audio", turn="c.1", text="Sure.", last=True, speech=np.ones(3, np.float32)
            )
            yield event(request, "interrupted", turn="c.1", said="Su", played_ms=7)
            yield event(request, "failed", turn="c.2", error=Overloaded("no room").to_wire())
        yield from closed(request)

    async def use(call: LiveCall, fake: FakeServer) -> None:
        for _ in range(3):
            await call.send(CHUNK)
        await call.hang_up()
        started, heard, sound, interrupted, failed, last = [event async for event in call]
        assert (started.type, started.turn, started.more["at_ms"]) == ("speech_started", "c.1", 40)
        assert (heard.type, heard.text) == ("transcript", "Two burgers.")
        assert (sound.text, sound.speech.tolist(), sound.sample_rate_hz) == (
            "Sure.",
            [1.0] * 3,
            RATE_HZ,
        )
        assert [(span.stage, span.turn, span.more) for span in sound.spans] == [
            ("speak", "c.1", {"members": 3})
        ]
        assert (interrupted.text, interrupted.more["played_ms"]) == ("Su", 7)
        assert isinstance(failed.error, Overloaded)
        assert (failed.turn, last.type) == ("c.2", "closed")
        assert await rest_of(call) == []
        assert len(call.lags_ms) == 3
        assert call.ended

    with_call(script, use)


def test_what_is_wrong_with_one_chunk_is_told_and_the_call_goes_on() -> None:
    def script(request: Any, context: Any) -> Iterator[Message]:
        if request.id.endswith("/1"):
            yield chunk_failed(request, "[tristage code=INVALID_INPUT stage=live] PCM has a shape")
        else:
            yield from quiet(request, context)

    async def use(call: LiveCall, fake: FakeServer) -> None:
        for _ in range(3):
            await call.send(CHUNK)
        failed = await anext(call)
        assert (failed.type, failed.turn) == ("failed", "")
        assert isinstance(failed.error, InvalidInput)
        await call.hang_up()
        assert await rest_of(call) == ["closed"]
        assert len(call.lags_ms) == 2

    with_call(script, use)


@pytest.mark.parametrize("names_call", [True, False])
def test_an_error_of_the_call_ends_it_and_keeps_its_kind(names_call: bool) -> None:
    def script(request: Any, context: Any) -> Iterator[Message]:
        refusal = Overloaded("64 calls are on the line", stage="live", retry_after_ms=250)
        failed = chunk_failed(request, refusal.to_wire())
        if not names_call:
            failed.infer_response.Clear()
        yield failed

    async def use(call: LiveCall, fake: FakeServer) -> None:
        await call.send(CHUNK)
        with pytest.raises(Overloaded, match="64 calls") as caught:
            await rest_of(call)
        assert (caught.value.turn, caught.value.retry_after_ms) == (call.call_id, 250)
        assert await rest_of(call) == []
        with pytest.raises(Overloaded):
            await call.send(CHUNK)
        await call.hang_up()
        await call.aclose()
        assert fake.gone.acquire(timeout=WAIT_S)

    assert len(with_call(script, use)) == 1


def test_a_server_that_keeps_the_stream_open_behind_the_end_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_module, "CLOSE_S", 0.05)
    released = threading.Event()

    def script(request: Any, context: Any) -> Iterator[Message]:
        yield from closed(request)
        if flag(request, "end"):
            context.add_callback(released.set)
            released.wait(WAIT_S)

    async def use(call: LiveCall, fake: FakeServer) -> None:
        await call.send(CHUNK)
        await call.hang_up()
        assert await rest_of(call) == ["closed"]

    with_call(script, use)
    assert released.is_set()


def ends_early(request: Any, context: Any) -> Iterator[Message]:
    yield from listened(request)


def breaks(request: Any, context: Any) -> Iterator[Message]:
    yield event(request, "speech_started")
    raise RuntimeError("the server broke")


def no_event(request: Any, context: Any) -> Iterator[Message]:
    yield message(service_pb2.ModelInferRequest(id=request.id), EVENT=texts("[]"))


def no_spans(request: Any, context: Any) -> Iterator[Message]:
    yield message(request, EVENT=texts('{"type": "audio"}'), EVENTS=texts("{}"))


def no_tensor(request: Any, context: Any) -> Iterator[Message]:
    broken = event(request, "closed")
    broken.infer_response.raw_output_contents.pop()
    yield broken


def somebody_else(request: Any, context: Any) -> Iterator[Message]:
    """Public case M1."""
    yield event(service_pb2.ModelInferRequest(id="someone-else"), "transcript", text="Mine.")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (ends_early, "ended before the call was closed"),
        (breaks, "Exception iterating responses|the server broke"),
        (no_event, "is no event"),
        (no_tensor, "is no event"),
        (no_spans, "is no event"),
        (somebody_else, "'someone-else' came to this call"),
    ],
)
def test_a_stream_that_goes_wrong_is_a_stage_failure(script: Script, reason: str) -> None:
    async def use(call: LiveCall, fake: FakeServer) -> None:
        await call.send(CHUNK)
        await call.hang_up()
        with pytest.raises(StageFailed, match=reason) as caught:
            await rest_of(call)
        assert caught.value.turn == call.call_id
        assert await rest_of(call) == []

    with_call(script, use)


def test_no_server_is_told_to_whoever_reads_and_whoever_sends() -> None:
    async def speak() -> None:
        async with LiveClient("127.0.0.1:1") as client, client.call() as call:
            await call.send(CHUNK)
            with pytest.raises(StageFailed, match="the server does not answer"):
                await rest_of(call)
            with pytest.raises(StageFailed, match="the server does not answer"):
                await call.send(CHUNK)

    asyncio.run(speak())


def silent(request: Any, context: Any) -> Iterator[Message]:
    yield from ()


def only_chunks(request: Any, context: Any) -> Iterator[Message]:
    yield from listened(request)
    if flag(request, "end"):
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait(WAIT_S)


@pytest.mark.parametrize(
    ("limit", "script"), [("UNANSWERED_S", silent), ("TIMEOUT_S", only_chunks)]
)
def test_a_call_of_which_nothing_comes_any_more_has_failed(
    limit: str, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_module, "LOOKS", 50)
    monkeypatch.setattr(call_module, limit, 0.1)

    async def use(call: LiveCall, fake: FakeServer) -> None:
        await call.send(CHUNK)
        await call.send(CHUNK)
        if limit == "TIMEOUT_S":
            await call.hang_up()
        with pytest.raises(StageFailed, match=r"nothing was answered for 0\.1 s"):
            await rest_of(call)
        assert await asyncio.to_thread(fake.gone.acquire, timeout=WAIT_S)

    with_call(script, use)


def test_a_caller_who_says_nothing_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_module, "UNANSWERED_S", 0.02)

    async def use(call: LiveCall, fake: FakeServer) -> None:
        await call.send(CHUNK)
        await asyncio.sleep(0.1)
        await call.hang_up()
        monkeypatch.setattr(call_module, "UNANSWERED_S", WAIT_S)
        assert await rest_of(call) == ["closed"]

    with_call(quiet, use)


def test_what_came_while_the_event_loop_was_held_up_is_no_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def use(call: LiveCall, fake: FakeServer) -> None:
        await call.send(CHUNK)
        await call.send(CHUNK)
        monkeypatch.setattr(call_module, "UNANSWERED_S", 0.01)
        time.sleep(0.02)
        call._look()
        monkeypatch.setattr(call_module, "UNANSWERED_S", WAIT_S)
        await call.hang_up()
        assert await rest_of(call) == ["closed"]

    with_call(quiet, use)


def test_cancel_from_another_task_wakes_whoever_iterates() -> None:
    async def use(call: LiveCall, fake: FakeServer) -> None:
        await call.send(CHUNK)
        reading = asyncio.create_task(rest_of(call))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(Cancelled):
            await reading
        with pytest.raises(Cancelled):
            await call.send(CHUNK)
        assert await rest_of(call) == []
        assert await asyncio.to_thread(fake.gone.acquire, timeout=WAIT_S)

    with_call(silent, use)


def test_whoever_gives_up_waiting_for_an_event_loses_none() -> None:
    async def use(call: LiveCall, fake: FakeServer) -> None:
        await call.send(CHUNK)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(call)
        await call.hang_up()
        assert await rest_of(call) == ["closed"]

    with_call(quiet, use)


@pytest.mark.parametrize("begun", [True, False])
def test_leaving_the_block_ends_the_call_on_the_server(begun: bool) -> None:
    async def use(call: LiveCall, fake: FakeServer) -> None:
        if begun:
            await call.send(CHUNK)
            assert await asyncio.to_thread(fake.arrived.acquire, timeout=WAIT_S)
            await call.aclose()
            assert await asyncio.to_thread(fake.gone.acquire, timeout=WAIT_S)

    assert len(with_call(quiet, use)) == begun


def test_closing_the_client_cancels_its_calls() -> None:
    async def speak(address: str) -> None:
        client = LiveClient(address)
        call = client.call()
        await call.send(CHUNK)
        reading = asyncio.create_task(rest_of(call))
        await asyncio.sleep(0.05)
        await client.aclose()
        with pytest.raises(Cancelled):
            await reading
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with serving(silent) as (_, address):
        asyncio.run(speak(address))


def test_hanging_up_is_done_once_and_nothing_is_sent_behind_it() -> None:
    async def use(call: LiveCall, fake: FakeServer) -> None:
        await call.send(CHUNK)
        await call.hang_up()
        await call.hang_up()
        with pytest.raises(StageFailed, match="has been hung up"):
            await call.send(CHUNK)
        assert await rest_of(call) == ["closed"]
        await call.hang_up()

    requests = with_call(quiet, use)
    assert [flag(request, "end") for request in requests] == [False, True]


def test_requests_are_numbered_and_only_the_first_says_how_the_call_is_to_be() -> None:
    async def use(call: LiveCall, fake: FakeServer) -> None:
        await call.send(np.array([1, -2], ">i2"))
        await call.send(b"", report={"turn": "c.1", "played_ms": 40})
        await call.stop_answer()
        await call.hang_up()
        await rest_of(call)

    first, second, third, last = with_call(
        quiet,
        use,
        call_id="c",
        rate_hz=48_000,
        history=[Utterance("user", "Hi.")],
        partials=True,
        lead_ms=300,
        traceparent=f"00-{'1' * 32}-{'2' * 16}-01",
        options=TurnOptions(temperature=0.5),
    )
    assert [one.id for one in (first, second, third, last)] == ["c", "c/1", "c/2", "c/3"]
    assert {one.parameters["sequence_id"].string_param for one in (first, last)} == {"c"}
    assert [flag(one, "start") for one in (first, second, last)] == [True, False, False]
    assert [flag(one, "end") for one in (first, second, last)] == [False, False, True]
    assert given(first)["PCM"] == np.array([1, -2], "<i2").tobytes()
    assert json.loads(given(first)["HISTORY"]) == [{"role": "user", "text": "Hi."}]
    assert first.parameters["rate_hz"].int64_param == 48_000
    assert first.parameters["lead_ms"].int64_param == 300
    assert first.parameters["partials"].bool_param
    assert first.parameters["traceparent"].string_param.startswith("00-1111")
    assert first.parameters["temperature"].string_param == "0.5"
    assert {key for key in second.parameters if not key.startswith("sequence")} == {
        "triton_enable_empty_final_response"
    }
    assert {name: json.loads(raw) for name, raw in given(second).items()} == {
        "REPORT": {"turn": "c.1", "played_ms": 40}
    }
    assert json.loads(given(third)["REPORT"]) == {"stop": True}
    assert given(last) == {"PCM": bytes(2)}  # the server refuses a request without any input


def test_a_call_may_be_hung_up_before_anything_was_said() -> None:
    async def use(call: LiveCall, fake: FakeServer) -> None:
        await call.hang_up()
        assert await rest_of(call) == ["closed"]

    (only,) = with_call(quiet, use)
    assert (flag(only, "start"), flag(only, "end")) == (True, True)


def test_any_number_of_tasks_may_send_at_once() -> None:
    async def use(call: LiveCall, fake: FakeServer) -> None:
        await asyncio.gather(*(call.send(bytes(100_000)) for _ in range(30)), call.stop_answer())
        await call.hang_up()
        assert await rest_of(call) == ["closed"]

    numbers = [request.id.partition("/")[2] for request in with_call(quiet, use)]
    assert numbers == ["", *map(str, range(1, 32))]


@pytest.mark.parametrize(
    "sound", [np.zeros(9, np.float32), np.zeros(9, np.uint8), np.zeros((2, 9), np.int16)]
)
def test_sound_that_is_no_16_bit_pcm_is_refused_before_it_is_sent(sound: Any) -> None:
    async def use(call: LiveCall, fake: FakeServer) -> None:
        with pytest.raises(InvalidInput, match=r"int16 \[samples\] is accepted"):
            await call.send(sound)

    assert with_call(quiet, use) == []


def test_threads_use_a_call_as_tasks_do() -> None:
    with serving(Answering()) as (_, address), BlockingLiveClient(address) as client:
        with client.call(rate_hz=8_000) as call:
            call.send(np.full(800, 9000, np.int16))
            for _ in range(4):
                call.send(CHUNK)
            call.hang_up()
            kinds = [event.type for event in call]
        with client.call() as cancelled:
            cancelled.stop_answer()
            threading.Timer(0.05, cancelled.cancel).start()
            with pytest.raises(Cancelled):
                next(cancelled)
            assert list(cancelled) == []
    assert kinds == ["transcript", "audio", "audio", "answered", "closed"]
