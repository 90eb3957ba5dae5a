"""Whole spoken turns on the real server."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from client import audio
from client.conversation import Conversation
from client.record import TurnRecord
from client.requests import turn_request
from client.responses import TurnChunk
from client.trace import TracedTurn, to_spans
from client.turns import TurnClient, TurnOptions
from client.wer import word_error_rate, words
from deploy import figures
from loadtest.stages.timbre import pitch_hz
from python_backends.errors import Cancelled, InvalidInput, StageError
from python_backends.ordering.exchange import join_pieces
from python_backends.ordering.menu import money
from python_backends.speech import VOICES
from tests.server.asking import asking, chunks_of
from tests.server.conftest import Served
from tests.server.sounds import NO_SPEECH

pytestmark = pytest.mark.server

SAMPLES = Path(__file__).parents[2] / "samples"
ORDERS = [SAMPLES / f"order-{number}.wav" for number in range(1, 6)]
LONG = SAMPLES / "order-long.wav"
GREEDY = TurnOptions(temperature=0.0, speech_temperature=0.0)
STAGES = ("turn", "encode", "asr_decode", "think", "prosody", "acoustic")
SOON_S = 2.0
"""Generous for a busy machine; a stage that goes on generating takes longer."""


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[TurnClient]:
    with TurnClient(served.grpc_address) as one:
        yield one


def reply(chunks: list[TurnChunk]) -> str:
    return join_pieces(chunk.text for chunk in chunks)


def sound(chunks: list[TurnChunk]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.concatenate([chunk.speech for chunk in chunks])


def open_requests(served: Served) -> Mapping[str, int]:
    """`tristage_open_requests` of every stage, its proxies included."""
    found: Counter[str] = Counter()
    for address in served.metrics_addresses:
        found.update(figures.open_requests(figures.read_metrics(address)))
    return found


def wait_until_idle(served: Served) -> None:
    """Fail unless every stage has ended all its requests soon."""
    deadline = time.monotonic() + SOON_S
    while any(open_requests(served).values()):
        assert time.monotonic() < deadline, open_requests(served)
        time.sleep(0.02)
    assert set(STAGES) <= open_requests(served).keys()


def test_an_order_is_heard_answered_and_spoken(client: TurnClient) -> None:
    chunks = list(client.turn(audio.read(ORDERS[0])))
    assert words(chunks[0].heard) == words(
        "Hi, I would like two cheeseburgers and a large Coke please."
    )
    assert "cheeseburgers" in reply(chunks)
    assert "Coke" in reply(chunks)
    assert chunks[-1].status == "stop"
    spoken = sound(chunks)
    assert np.isfinite(spoken).all()
    heard = client.transcribe(audio.resample(spoken, 24_000, 16_000)).text
    assert word_error_rate(reply(chunks), heard) <= 0.1


def test_a_turn_is_answered_in_the_voice_that_is_asked_for(client: TurnClient) -> None:
    order = audio.read(ORDERS[0])
    alto, baritone = (
        list(client.turn(order, options=replace(GREEDY, voice=voice))) for voice in VOICES
    )
    assert reply(alto) == reply(baritone)
    assert pitch_hz(sound(baritone)) < 0.75 * pitch_hz(sound(alto))


def test_speech_starts_before_the_answer_has_been_thought_to_its_end(client: TurnClient) -> None:
    chunks = list(client.turn(audio.read(LONG), options=GREEDY))
    thought = [e.end_ns for e in chunks[-1].events if e.stage == "think" and e.what == "compute"]
    first = next(chunk for chunk in chunks if chunk.speech.size)
    assert chunks[-1].piece >= 1
    assert first.received_ns < max(thought)


def test_every_stage_leaves_its_mark_in_order(client: TurnClient) -> None:
    chunks = list(client.turn(audio.read(ORDERS[2]), turn_id="marked"))
    first = {}
    for event in chunks[0].events:
        assert event.start_ns <= event.end_ns
        assert event.turn.startswith("marked")
        first.setdefault(event.stage, event.end_ns)
    assert set(first) == set(STAGES)
    inner = [first[stage] for stage in STAGES[1:]]
    assert inner == sorted(inner)


def test_without_streaming_there_is_one_piece_and_one_chunk(client: TurnClient) -> None:
    whole = TurnOptions(temperature=0.0, speech_temperature=0.0, stream=False)
    chunks = list(client.turn(audio.read(ORDERS[0]), options=whole))
    streamed = list(client.turn(audio.read(ORDERS[0]), options=GREEDY))
    assert len(chunks) == 1
    assert reply(chunks) == reply(streamed)


def test_a_conversation_of_five_turns_keeps_its_thread(client: TurnClient) -> None:
    conversation = Conversation(client)
    replies = [reply(list(conversation.turn(audio.read(path), options=GREEDY))) for path in ORDERS]
    assert [line.role for line in conversation.history] == ["user", "assistant"] * 5
    assert "chicken sandwich" in replies[1]
    assert "pizza" in replies[2]
    assert "small coffee" in replies[3]
    assert len(set(replies)) == 5
    ordered = {(item.name, item.count) for item in conversation.order.items}
    assert {("cheeseburger", 2), ("chicken sandwich", 1), ("coffee", 1)} <= ordered
    assert money(conversation.order.cents) in replies[4]
    forgetful = [reply(list(client.turn(audio.read(path), options=GREEDY))) for path in ORDERS]
    assert replies[0] == forgetful[0]
    assert replies[1:] != forgetful[1:]


def test_eight_turns_at_once_say_what_each_says_alone(client: TurnClient) -> None:
    sounds = [audio.read(path) for path in [*ORDERS, LONG, ORDERS[0], ORDERS[3]]]

    def say(one: audio.Floats) -> tuple[str, str]:
        chunks = list(client.turn(one, options=GREEDY))
        return chunks[0].heard, reply(chunks)

    alone = [say(one) for one in sounds]
    with ThreadPoolExecutor(len(sounds)) as pool:
        together = list(pool.map(say, sounds))
    assert together == alone


@pytest.mark.parametrize("turn_id", ["1", ""])
def test_turns_of_one_id_or_none_are_kept_apart(
    served: Served, client: TurnClient, turn_id: str
) -> None:
    """Public case C15."""
    sounds = [audio.read(path) for path in [*ORDERS, *ORDERS[:3]]]
    alone = [list(client.turn(one, options=GREEDY)) for one in sounds]

    def said(one: audio.Floats) -> list[TurnChunk]:
        request = turn_request(one, (), turn_id="replaced", session_id=None, options=GREEDY)
        request.id = turn_id
        with asking(served.grpc_address) as stub:
            return chunks_of(stub, request)

    with ThreadPoolExecutor(len(sounds)) as pool:
        together = list(pool.map(said, sounds))
    for one, other in zip(alone, together, strict=True):
        assert (one[0].heard, reply(one)) == (other[0].heard, reply(other))
        assert sound(one).shape == sound(other).shape
        assert np.abs(sound(one) - sound(other)).max() < 1e-4


def test_silence_is_answered_with_one_piece_without_sound(client: TurnClient) -> None:
    chunks = list(client.turn(np.zeros(16_000, np.float32)))
    assert [chunk.speech.size for chunk in chunks] == [0]
    assert (chunks[0].heard, chunks[0].status) == ("", "no_speech")


@pytest.mark.parametrize("kind", NO_SPEECH)
def test_noise_and_music_are_answered_with_one_piece_without_sound(
    client: TurnClient, kind: str
) -> None:
    """Public case A4, through the whole ensemble."""
    chunks = list(client.turn(NO_SPEECH[kind]))
    assert [chunk.speech.size for chunk in chunks] == [0]
    assert (chunks[0].heard, chunks[0].text, chunks[0].status) == ("", "", "no_speech")


def test_a_cancelled_client_stops_every_stage(served: Served, client: TurnClient) -> None:
    stream = client.turn(audio.read(LONG), options=GREEDY)
    next(stream)
    assert sum(open_requests(served).values()) > 0
    stream.cancel()
    with pytest.raises(Cancelled):
        list(stream)
    wait_until_idle(served)
    first, *_ = client.turn(audio.read(ORDERS[2]))
    assert first.heard == "Do you have pizza?"


@pytest.mark.parametrize("after_s", [0.0, 0.15, 0.4])
def test_a_cancel_at_any_time_stops_every_stage(
    served: Served, client: TurnClient, after_s: float
) -> None:
    stream = client.turn(audio.read(LONG), options=GREEDY)
    time.sleep(after_s)
    stream.close()
    time.sleep(0.1)
    wait_until_idle(served)


def test_a_vanished_client_stops_every_stage(served: Served) -> None:
    """Public case E3."""
    code = (
        "import sys, time; from client import audio; from client.turns import TurnClient\n"
        "turn = TurnClient(sys.argv[1]).turn(audio.read(sys.argv[2]))\n"
        "next(turn); print('speaking', flush=True); time.sleep(60)"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", code, served.grpc_address, str(LONG)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "speaking\n"
        assert sum(open_requests(served).values()) > 0
        caller.kill()
    wait_until_idle(served)


def test_bad_input_is_refused_with_a_typed_error_and_disturbs_nobody(client: TurnClient) -> None:
    order = audio.read(ORDERS[2])
    bad = order.copy()
    bad[7] = np.inf
    with ThreadPoolExecutor(2) as pool:
        good = pool.submit(lambda: list(client.turn(order)))
        with pytest.raises(InvalidInput, match="finite") as refused:
            list(client.turn(bad))
    assert refused.value.stage == "encode"
    assert good.result()[0].heard == "Do you have pizza?"


@pytest.mark.parametrize(
    "options",
    [TurnOptions(temperature=float("nan")), TurnOptions(steps=33), TurnOptions(solver="rk4")],
)
def test_options_out_of_range_are_refused(client: TurnClient, options: TurnOptions) -> None:
    with pytest.raises(InvalidInput, match=r"accepted|neither"):
        list(client.turn(audio.read(ORDERS[2]), options=options))


def test_an_error_tells_nothing_about_the_server(client: TurnClient) -> None:
    with pytest.raises(StageError) as refused:
        list(client.turn(np.full(16_000, np.nan, np.float32)))
    assert "Traceback" not in str(refused.value)
    assert "/" not in str(refused.value)


def test_a_turn_is_one_trace_through_every_stage_and_server(
    served: Served, client: TurnClient
) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    stream = client.turn(audio.read(ORDERS[0]), traceparent=f"00-{trace}-00f067aa0ba902b7-01")
    record = TurnRecord(stream.turn_id, stream.sent_ns, stream.traceparent)
    for chunk in stream:
        record.add(chunk)
    root, *spans = to_spans(TracedTurn.of(record), 0)
    stages = {span.attributes["stage"] for span in spans if span.attributes}
    assert stages == set(STAGES)
    remote = {s.attributes["stage"] for s in spans if s.attributes and "replica" in s.attributes}
    apart = {"encode", "asr_decode", "think"} if len(served.metrics_addresses) > 1 else set()
    assert remote == apart
    for span in spans:
        assert f"{span.context.trace_id:032x}" == trace
        assert span.parent == root.context
        assert root.start_time <= span.start_time <= span.end_time <= root.end_time
