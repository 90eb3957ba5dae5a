from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from loadtest.load.reading import Reading
from python_backends.errors import Overloaded, StageFailed
from tests.unit.fake_triton import chunk, end, failure, message

REQUEST = service_pb2.ModelInferRequest(id="t1")


def read(messages: Sequence[Any], *, emulated: bool = False) -> Reading:
    reading = Reading("t1", emulated=emulated)
    for at_ns, each in enumerate(messages, 1):
        reading.take(each, at_ns)
    reading.close()
    return reading


def test_chunks_are_noted_with_their_arrival_and_their_sound() -> None:
    reading = read(
        [chunk(REQUEST, 0, 0, 0), chunk(REQUEST, 0, 1, 1), chunk(REQUEST, 1, 0, 3), end(REQUEST)]
    )
    assert reading.chunks_ns == [1, 2, 3]
    assert reading.chunk_audio_ms == [30 / 24_000 * 1e3] * 3


def test_emulated_sound_is_told_in_ms() -> None:
    only = message(
        REQUEST,
        final=True,
        PIECE=np.array([[0, 0, 3]], np.int32),
        SPEECH=np.array([[320]], np.float32),
    )
    assert read([only], emulated=True).chunk_audio_ms == [320.0]


def test_a_piece_with_nothing_to_say_has_no_sound() -> None:
    assert read([chunk(REQUEST, 0, 0, 7), end(REQUEST)]).chunk_audio_ms == [0.0]


def test_events_are_those_of_the_last_response_of_each_piece() -> None:
    parts = [chunk(REQUEST, 0, 0, 0), chunk(REQUEST, 0, 1, 1), chunk(REQUEST, 1, 0, 3)]
    reading = read([*parts, end(REQUEST)])
    assert [event["piece"] for event in reading.events()] == [0, 1]
    assert reading.events()[0]["tokens"] == 7


def test_an_error_is_raised_as_what_it_is() -> None:
    refusal = Overloaded("no room", stage="think", retry_after_ms=250)
    with pytest.raises(Overloaded) as caught:
        read([chunk(REQUEST, 0, 0, 0), failure(REQUEST, refusal.to_wire())])
    assert (caught.value.turn, caught.value.retry_after_ms) == ("t1", 250)


BROKEN = {
    "no end marker": [chunk(REQUEST, 0, 0, 3)],
    "no last chunk": [chunk(REQUEST, 0, 0, 1), end(REQUEST)],
    "a chunk is missing": [chunk(REQUEST, 0, 1, 3), end(REQUEST)],
    "a chunk after the last": [chunk(REQUEST, 0, 0, 3), chunk(REQUEST, 1, 0, 3), end(REQUEST)],
    "after the end marker": [chunk(REQUEST, 0, 0, 3), end(REQUEST), end(REQUEST)],
    "another turn's": [chunk(service_pb2.ModelInferRequest(id="t2"), 0, 0, 3), end(REQUEST)],
    "no PIECE": [message(REQUEST, SPEECH=np.zeros((1, 1), np.float32)), end(REQUEST)],
    "no SAMPLE_RATE": [
        message(
            REQUEST, PIECE=np.array([[0, 0, 3]], np.int32), SPEECH=np.zeros((1, 1), np.float32)
        ),
        end(REQUEST),
    ],
}


@pytest.mark.parametrize("messages", BROKEN.values(), ids=BROKEN.keys())
def test_a_stream_that_breaks_the_grammar_is_a_failure(messages: Sequence[Any]) -> None:
    with pytest.raises(StageFailed):
        read(messages)


def test_events_that_are_no_json_are_a_failure() -> None:
    events = np.array([[b"{oops"]], np.object_)
    only = message(
        REQUEST,
        final=True,
        PIECE=np.array([[0, 0, 3]], np.int32),
        SPEECH=np.zeros((1, 1), np.float32),
        EVENTS=events,
    )
    with pytest.raises(StageFailed, match="not JSON"):
        read([only], emulated=True).events()
