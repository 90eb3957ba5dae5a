"""The clients against a small gRPC server that answers as `turn` would, or as it must not."""

import asyncio
import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.utils import deserialize_bytes_tensor

from client.requests import turn_request
from client.turns import (
    AsyncConversation,
    AsyncTurnClient,
    Conversation,
    TurnChunk,
    TurnClient,
    TurnOptions,
    Utterance,
)
from python_backends.bridge.options import Options
from python_backends.errors import (
    Cancelled,
    DeadlineMissed,
    InvalidInput,
    Overloaded,
    StageFailed,
)
from tests.unit.fake_triton import (
    AUDIO,
    WAIT_S,
    FakeServer,
    Message,
    Script,
    chunk,
    end,
    failure,
    message,
    one_chunk_then_silence,
    serving,
    texts,
    two_pieces,
)


def turn(script: Script, *, timeout_s: float = WAIT_S, **more: Any) -> list[TurnChunk]:
    with serving(script) as (_, address), TurnClient(address, timeout_s=timeout_s) as client:
        return list(client.turn(AUDIO, **more))


async def turn_async(script: Script, *, timeout_s: float = WAIT_S) -> list[TurnChunk]:
    with serving(script) as (_, address):
        async with AsyncTurnClient(address, timeout_s=timeout_s) as client:
            return [chunk async for chunk in client.turn(AUDIO)]


def turn_sync_in_asyncio(script: Script, *, timeout_s: float = WAIT_S) -> list[TurnChunk]:
    return asyncio.run(turn_async(script, timeout_s=timeout_s))


either = pytest.mark.parametrize("speak", [turn, turn_sync_in_asyncio], ids=["sync", "async"])
Speak = Callable[..., list[TurnChunk]]


@either
def test_chunks_come_in_order_with_text_on_the_first_of_each_piece(speak: Speak) -> None:
    chunks = speak(two_pieces)
    assert [(c.piece, c.chunk, c.last_chunk, c.last_piece) for c in chunks] == [
        (0, 0, False, False),
        (0, 1, True, False),
        (1, 0, True, True),
    ]
    assert [c.text for c in chunks] == ["Piece 0.", "", "Piece 1."]
    assert [c.heard for c in chunks] == ["two burgers", "", ""]
    assert [float(c.speech[0]) for c in chunks] == pytest.approx([0, 0.1, 1])
    assert {c.sample_rate_hz for c in chunks} == {24_000}
    assert chunks[2].events[0].piece == 1
    assert chunks[2].ends_turn


@either
def test_the_end_marker_may_ride_on_the_last_chunk(speak: Speak) -> None:
    """Public case F8."""
    assert len(speak(lambda request, _: iter([chunk(request, 0, 0, 3, final=True)]))) == 1


@either
def test_a_piece_without_sound_has_none_whatever_speech_says(speak: Speak) -> None:
    def script(request: Any, context: Any) -> Iterator[Message]:
        yield chunk(request, 0, 0, 1 | 2 | 4)
        yield end(request)

    (only,) = speak(script)
    assert only.speech.size == 0


@either
@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ([(0, 1, 3)], r"chunk \(0, 1\) came where \(0, 0\) was due"),
        ([(0, 0, 1), (0, 1, 3)], r"chunk \(0, 1\) came where \(1, 0\) was due"),
        ([(0, 0, 0), (1, 0, 3)], r"chunk \(1, 0\) came where \(0, 1\) was due"),
        ([(0, 0, 3), (1, 0, 3)], r"chunk \(1, 0\) came where nothing was due"),
        ([(0, 0, 1)], "ended before its last chunk"),
        ([], "ended before its last chunk"),
    ],
)
def test_a_chunk_out_of_place_breaks_the_turn(
    speak: Speak, places: list[tuple[int, int, int]], reason: str
) -> None:
    """Public case F10."""

    def script(request: Any, context: Any) -> Iterator[Message]:
        yield from (chunk(request, *place) for place in places)
        yield end(request)

    with pytest.raises(StageFailed, match=reason):
        speak(script)


@either
def test_a_stream_without_end_marker_is_broken(speak: Speak) -> None:
    with pytest.raises(StageFailed, match="without an end marker"):
        speak(lambda request, _: iter([chunk(request, 0, 0, 3)]))


@either
def test_a_second_end_marker_is_refused(speak: Speak) -> None:
    """Public case F8."""

    def script(request: Any, context: Any) -> Iterator[Message]:
        yield chunk(request, 0, 0, 3)
        yield end(request)
        yield end(request)

    with pytest.raises(StageFailed, match="after the end marker"):
        speak(script)


@either
def test_a_message_of_another_turn_is_refused(speak: Speak) -> None:
    """Public case M1."""

    def script(request: Any, context: Any) -> Iterator[Message]:
        request.id = "someone-else"
        yield end(request)

    with pytest.raises(StageFailed, match="someone-else"):
        speak(script)


@either
@pytest.mark.parametrize(
    "tensors",
    [
        {"TEXT": texts("no piece")},
        {"PIECE": np.zeros((1, 2), np.int32)},
        {"PIECE": np.zeros((1, 3), np.int32), "SAMPLE_RATE": np.ones((1, 1), np.int32)},
        {"PIECE": np.full((1, 3), 4, np.int32), "EVENTS": texts("{")},
    ],
    ids=["no PIECE", "short PIECE", "no SPEECH", "broken EVENTS"],
)
def test_a_malformed_response_is_a_stage_failure(
    speak: Speak, tensors: dict[str, np.ndarray]
) -> None:
    with pytest.raises(StageFailed, match="malformed response"):
        speak(lambda request, _: iter([message(request, **tensors)]))


@either
def test_a_tensor_whose_bytes_are_missing_is_a_stage_failure(speak: Speak) -> None:
    def script(request: Any, context: Any) -> Iterator[Message]:
        whole = chunk(request, 0, 0, 3)
        whole.infer_response.raw_output_contents[0] = b""
        yield whole

    with pytest.raises(StageFailed, match="malformed response"):
        speak(script)


@either
def test_an_error_is_final_and_keeps_its_kind(speak: Speak) -> None:
    def script(request: Any, context: Any) -> Iterator[Message]:
        yield chunk(request, 0, 0, 0)
        yield failure(
            request,
            "in ensemble 'voice_turn', [tristage code=OVERLOADED stage=think "
            "retry_after_ms=250] 64 turns are running",
        )
        one_chunk_then_silence(request, context)

    with pytest.raises(Overloaded, match="64 turns are running") as caught:
        speak(script)
    assert (caught.value.stage, caught.value.retry_after_ms) == ("think", 250)
    assert len(caught.value.turn) == 32


@either
def test_an_error_of_foreign_origin_names_the_turn(speak: Speak) -> None:
    with pytest.raises(StageFailed, match="Stub process is not healthy") as caught:
        speak(lambda request, _: iter([failure(request, "Stub process is not healthy.")]))
    assert len(caught.value.turn) == 32


@either
def test_after_an_error_the_server_closes_the_stream_and_not_the_client(speak: Speak) -> None:
    """Cut off in between, the server (2.51) would keep the models of the request loaded."""
    open_behind_it = []

    def script(request: Any, context: Any) -> Iterator[Message]:
        yield failure(request, "[tristage code=OVERLOADED stage=think] full")
        time.sleep(0.1)
        open_behind_it.append(context.is_active())

    with pytest.raises(Overloaded):
        speak(script)
    assert open_behind_it == [True]


@either
def test_an_error_is_told_although_the_server_keeps_the_stream_open(speak: Speak) -> None:
    gone = threading.Event()

    def script(request: Any, context: Any) -> Iterator[Message]:
        context.add_callback(gone.set)
        yield failure(request, "[tristage code=OVERLOADED stage=think] full")
        gone.wait(2 * WAIT_S)

    with pytest.raises(Overloaded):
        speak(script)
    assert gone.wait(WAIT_S)


@either
def test_silence_ends_in_a_missed_deadline(speak: Speak) -> None:
    with pytest.raises(DeadlineMissed, match=r"within 0\.3 s"):
        speak(one_chunk_then_silence, timeout_s=0.3)


@either
def test_a_status_of_the_call_becomes_a_typed_error(speak: Speak) -> None:
    def script(request: Any, context: Any) -> Iterator[Message]:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "unexpected shape for input 'AUDIO'")
        yield

    with pytest.raises(InvalidInput, match="unexpected shape"):
        speak(script)


def test_without_a_server_the_error_says_so() -> None:
    with (
        TurnClient("127.0.0.1:1", timeout_s=WAIT_S) as client,
        pytest.raises(StageFailed, match="the server does not answer"),
    ):
        list(client.turn(AUDIO))


def test_the_request_carries_audio_history_session_and_only_the_options_set() -> None:
    history = [Utterance("user", "Grüezi"), Utterance("assistant", "Hello")]
    options = TurnOptions(
        temperature=0.5,
        seed=7,
        steps=4,
        solver="euler",
        stream=False,
        top_k=12,
        top_p=1,
        repetition_penalty=1.25,
        logit_bias={49151: -100, 0: 0.5},
        stop=["END", "👍"],
    )
    with serving(two_pieces) as (fake, address), TurnClient(address) as client:
        list(client.turn(AUDIO, history, turn_id="t1", session_id="s1", options=options))
    (request,) = fake.requests
    assert (request.model_name, request.id) == ("turn", "t1")
    assert [(i.name, i.datatype, list(i.shape)) for i in request.inputs] == [
        ("AUDIO", "FP32", [1, 160]),
        ("HISTORY", "BYTES", [1, 1]),
        ("SESSION_ID", "BYTES", [1, 1]),
    ]
    raw = request.raw_input_contents
    np.testing.assert_array_equal(np.frombuffer(raw[0], np.float32), AUDIO)
    assert json.loads(deserialize_bytes_tensor(raw[1])[0]) == [
        {"role": "user", "text": "Grüezi"},
        {"role": "assistant", "text": "Hello"},
    ]
    assert bytes(deserialize_bytes_tensor(raw[2])[0]) == b"s1"
    sent = {key: value.WhichOneof("parameter_choice") for key, value in request.parameters.items()}
    assert sent == {
        "temperature": "string_param",
        "seed": "int64_param",
        "steps": "int64_param",
        "solver": "string_param",
        "stream": "bool_param",
        "top_k": "int64_param",
        "top_p": "string_param",
        "repetition_penalty": "string_param",
        "logit_bias": "string_param",
        "stop": "string_param",
        "traceparent": "string_param",
        "triton_enable_empty_final_response": "bool_param",
    }
    assert request.parameters["temperature"].string_param == "0.5"
    keys = ("top_p", "repetition_penalty", "logit_bias", "stop")
    read = Options.parse({key: request.parameters[key].string_param for key in keys})
    assert read == Options(
        top_p=1.0,
        repetition_penalty=1.25,
        logit_bias=((49151, -100.0), (0, 0.5)),
        stop=("END", "👍"),
    )


def test_every_turn_has_an_id_of_its_own() -> None:
    with serving(two_pieces) as (fake, address), TurnClient(address) as client:
        for _ in range(26):
            assert len(list(client.turn(AUDIO))) == 3
    assert len({request.id for request in fake.requests}) == 26


CALLERS = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def sent_with(fake: FakeServer) -> list[str]:
    return [request.parameters["traceparent"].string_param for request in fake.requests]


def test_every_turn_begins_a_trace_of_its_own_and_its_stream_knows_it() -> None:
    with serving(two_pieces) as (fake, address), TurnClient(address) as client:
        streams = [client.turn(AUDIO), client.turn(AUDIO), client.speak("Hello.")]
        for stream in streams:
            list(stream)
    sent = sent_with(fake)
    assert sorted(sent) == sorted(stream.traceparent for stream in streams)
    assert len({header.split("-")[1] for header in sent}) == 3
    for header in sent:
        assert Options(traceparent=header).given() == {"traceparent": header}


def test_a_caller_brings_the_trace_that_a_turn_belongs_to() -> None:
    async def speak(address: str) -> None:
        async with AsyncTurnClient(address) as client:
            async with client.turn(AUDIO, traceparent=CALLERS) as stream:
                assert stream.traceparent == CALLERS
                assert len([chunk async for chunk in stream]) == 3
            assert len([c async for c in client.speak("Hello.", traceparent=CALLERS)]) == 3
            conversation = AsyncConversation(client)
            assert len([c async for c in conversation.turn(AUDIO, traceparent=CALLERS)]) == 3

    with serving(two_pieces) as (fake, address):
        with TurnClient(address) as client:
            list(client.turn(AUDIO, traceparent=CALLERS))
            list(client.speak("Hello.", traceparent=CALLERS))
            list(Conversation(client).turn(AUDIO, traceparent=CALLERS))
        asyncio.run(speak(address))
    assert sent_with(fake) == [CALLERS] * 6


@pytest.mark.parametrize("header", ["no", f"ff{CALLERS[2:]}", f"00-{'0' * 32}{CALLERS[35:]}"])
def test_what_is_no_trace_context_is_refused_before_it_is_sent(header: str) -> None:
    with (
        TurnClient("127.0.0.1:1") as client,
        pytest.raises(InvalidInput, match="traceparent"),
    ):
        client.turn(AUDIO, traceparent=header)


def test_what_a_stage_tells_beside_its_times_stays_with_the_event() -> None:
    (first, _, _) = turn(two_pieces)
    assert first.events[0].more == {"tokens": 7}
    assert len({first.events[0], first.events[0]}) == 1


def test_one_client_serves_eight_threads() -> None:
    """Public case L1."""
    with (
        serving(two_pieces) as (_, address),
        TurnClient(address) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        turns = list(pool.map(lambda _: list(client.turn(AUDIO)), range(24)))
    assert [[(c.piece, c.chunk) for c in chunks] for chunks in turns] == [
        [(0, 0), (0, 1), (1, 0)]
    ] * 24


def test_a_client_may_be_dropped_in_another_thread_than_its_own() -> None:
    """Public case L1: with a stream that has been read in part."""
    with serving(one_chunk_then_silence) as (fake, address):
        mine = [client := TurnClient(address), stream := client.turn(AUDIO)]
        next(stream)
        del client, stream

        def drop() -> None:
            mine.clear()
            gc.collect()

        thread = threading.Thread(target=drop)
        thread.start()
        thread.join()
        assert fake.gone.acquire(timeout=WAIT_S)


def test_no_samples_are_sent_as_a_tensor_of_none() -> None:
    """Public case L8: not left out of the request."""
    request = turn_request(AUDIO[:0], (), turn_id=None, session_id=None, options=None)
    assert [(one.name, list(one.shape)) for one in request.inputs] == [("AUDIO", [1, 0])]
    assert list(request.raw_input_contents) == [b""]


def test_audio_of_two_dimensions_is_refused_before_it_is_sent() -> None:
    with (
        TurnClient("127.0.0.1:1") as client,
        pytest.raises(InvalidInput, match=r"\[2, 160\]"),
    ):
        client.turn(np.stack([AUDIO, AUDIO]))


def test_ten_megabytes_pass_in_both_directions() -> None:
    """Public case D8."""

    def script(request: Any, context: Any) -> Iterator[Message]:
        long = np.zeros((1, 2_500_000), np.float32)
        tensors = {"SPEECH": long, "SAMPLE_RATE": np.full((1, 1), 24_000, np.int32)}
        yield message(request, PIECE=np.array([[0, 0, 3]], np.int32), **tensors)
        yield end(request)

    fake_limits = np.zeros(900_000, np.float32)
    with serving(script) as (_, address), TurnClient(address) as client:
        (only,) = client.turn(fake_limits)
    assert only.speech.size == 2_500_000


def test_breaking_out_of_the_loop_ends_the_call_on_the_server() -> None:
    with serving(one_chunk_then_silence) as (fake, address), TurnClient(address) as client:
        for _ in client.turn(AUDIO):
            break
        assert fake.gone.acquire(timeout=WAIT_S)


def test_a_stream_that_is_never_read_ends_when_it_is_dropped() -> None:
    with serving(one_chunk_then_silence) as (fake, address), TurnClient(address) as client:
        stream = client.turn(AUDIO)
        assert fake.arrived.acquire(timeout=WAIT_S)
        del stream
        gc.collect()
        assert fake.gone.acquire(timeout=WAIT_S)


def test_cancel_from_another_thread_wakes_the_reader() -> None:
    with serving(one_chunk_then_silence) as (fake, address), TurnClient(address) as client:
        stream = client.turn(AUDIO)
        next(stream)
        timer = threading.Timer(0.05, stream.cancel)
        timer.start()
        with pytest.raises(Cancelled):
            next(stream)
        timer.join()
        assert list(stream) == []
        assert fake.gone.acquire(timeout=WAIT_S)


def test_the_block_of_a_stream_ends_its_call() -> None:
    with serving(one_chunk_then_silence) as (fake, address), TurnClient(address) as client:
        with client.turn(AUDIO) as stream:
            next(stream)
        assert fake.gone.acquire(timeout=WAIT_S)
        assert list(stream) == []


def test_the_async_stream_ends_its_call_by_break_by_block_and_by_cancel() -> None:
    async def speak(fake: FakeServer, address: str) -> None:
        async with AsyncTurnClient(address, timeout_s=WAIT_S) as client:
            async for _ in client.turn(AUDIO):
                break
            assert await asyncio.to_thread(fake.gone.acquire, timeout=WAIT_S)
            async with client.turn(AUDIO) as stream:
                await anext(stream)
            assert await asyncio.to_thread(fake.gone.acquire, timeout=WAIT_S)
            stream = client.turn(AUDIO)
            await anext(stream)
            asyncio.get_running_loop().call_later(0.05, stream.cancel)
            with pytest.raises(Cancelled):
                await anext(stream)
            assert await asyncio.to_thread(fake.gone.acquire, timeout=WAIT_S)

    with serving(one_chunk_then_silence) as (fake, address):
        asyncio.run(speak(fake, address))


def test_a_cancelled_task_stays_cancelled_and_ends_its_call() -> None:
    async def speak(fake: FakeServer, address: str) -> None:
        async with AsyncTurnClient(address, timeout_s=WAIT_S) as client:
            async with asyncio.timeout(WAIT_S):
                stream = client.turn(AUDIO)
                await anext(stream)
                reading = asyncio.ensure_future(anext(stream))
                await asyncio.sleep(0.05)
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
            assert await asyncio.to_thread(fake.gone.acquire, timeout=WAIT_S)

    with serving(one_chunk_then_silence) as (fake, address):
        asyncio.run(speak(fake, address))


def test_a_conversation_passes_on_what_was_heard_and_answered() -> None:
    with serving(two_pieces) as (fake, address), TurnClient(address) as client:
        conversation = Conversation(client)
        for _ in range(2):
            assert len(list(conversation.turn(AUDIO))) == 3
    exchange = [Utterance("user", "two burgers"), Utterance("assistant", "Piece 0. Piece 1.")]
    assert conversation.history == exchange * 2
    first, second = fake.requests
    assert [i.name for i in first.inputs] == ["AUDIO", "SESSION_ID"]
    assert [i.name for i in second.inputs] == ["AUDIO", "HISTORY", "SESSION_ID"]
    assert len(json.loads(deserialize_bytes_tensor(second.raw_input_contents[1])[0])) == 2


def test_a_conversation_remembers_only_the_pieces_that_arrived() -> None:
    """Public case M1."""
    with serving(one_chunk_then_silence) as (fake, address), TurnClient(address) as client:
        conversation = Conversation(client)
        for _ in conversation.turn(AUDIO):
            break
        assert fake.gone.acquire(timeout=WAIT_S)
    assert [line.text for line in conversation.history] == ["two burgers", "Piece 0."]


@pytest.mark.parametrize("kind", [Conversation, AsyncConversation])
def test_a_conversation_knows_what_has_been_confirmed(
    kind: type[Conversation] | type[AsyncConversation],
) -> None:
    conversation = kind(None)  # type: ignore[arg-type]
    assert not conversation.order.items
    conversation.history = [
        Utterance("user", "Got it, a salad."),
        Utterance("assistant", "Got it, two tacos and a large Coke. Anything else?"),
        Utterance("user", "And fries?"),
        Utterance("assistant", "Sure, what size fries would you like?"),
    ]
    assert conversation.order.text == "two tacos and a large Coke"
    assert conversation.order.cents == 750


def test_an_async_conversation_keeps_the_same_history() -> None:
    async def speak(address: str) -> list[Utterance]:
        async with AsyncTurnClient(address) as client:
            conversation = AsyncConversation(client, session_id="s")
            assert len([c async for c in conversation.turn(AUDIO)]) == 3
            return conversation.history

    with serving(two_pieces) as (_, address):
        assert [line.role for line in asyncio.run(speak(address))] == ["user", "assistant"]


def test_an_empty_turn_is_one_piece_and_no_history() -> None:
    def script(request: Any, context: Any) -> Iterator[Message]:
        piece = np.array([[0, 0, 7]], np.int32)
        yield message(request, PIECE=piece, TEXT=texts(""), HEARD=texts(""), STATUS=texts("empty"))
        yield end(request)

    with serving(script) as (_, address), TurnClient(address) as client:
        conversation = Conversation(client)
        (only,) = conversation.turn(np.zeros(0, np.float32))
    assert (only.text, only.heard, only.status, only.speech.size) == ("", "", "empty", 0)
    assert conversation.history == []


def test_transcribe_returns_text_or_the_typed_error() -> None:
    def heard(request: Any, context: Any) -> Iterator[Message]:
        yield message(request, HEARD=texts("do you have pizza"), STATUS=texts("stop"))

    def refused(request: Any, context: Any) -> Iterator[Message]:
        context.abort(grpc.StatusCode.INTERNAL, "x: [tristage code=INVALID_INPUT] NaN in AUDIO")
        yield

    with serving(heard) as (fake, address), TurnClient(address) as client:
        assert client.transcribe(AUDIO).text == "do you have pizza"
    assert fake.requests[0].model_name == "transcribe"
    with (
        serving(refused) as (_, address),
        TurnClient(address) as client,
        pytest.raises(InvalidInput, match="NaN in AUDIO"),
    ):
        client.transcribe(AUDIO)


def test_speak_streams_sound_for_text() -> None:
    with serving(two_pieces) as (fake, address), TurnClient(address) as client:
        assert len(list(client.speak("Hello there."))) == 3
    assert fake.requests[0].model_name == "speak"
    sent = deserialize_bytes_tensor(fake.requests[0].raw_input_contents[0])
    assert bytes(sent[0]) == b"Hello there."
