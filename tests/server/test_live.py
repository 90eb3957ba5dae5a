"""Live listening and live calls, on a real server."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from random import Random

import numpy as np
import pytest

from client import audio
from client.wer import word_error_rate
from deploy.figures import read_metrics, rows
from deploy.launcher import Server
from python_backends.scheduling.sequences import Refused, Sequences
from tests.server.lines import Line, pcm

pytestmark = pytest.mark.server
SAMPLES = Path(__file__).parents[2] / "samples"
SECOND = 32_000
"""Bytes of a second."""


def order(number: int, rest_s: float = 1.5) -> bytes:
    """Half a second of silence, an order, and silence behind it."""
    sound = audio.read(SAMPLES / f"order-{number}.wav")
    return bytes(SECOND // 2) + pcm(sound) + bytes(round(rest_s * SECOND))


@contextmanager
def calling(
    server: Server, model: str, call: str, sequence: int | str | None = None
) -> Iterator[Line]:
    line = Line(server.grpc_address, model, call, call if sequence is None else sequence)
    try:
        yield line
    finally:
        line.close()


def kinds(events: list[dict[str, object]]) -> list[object]:
    return [one["type"] for one in events]


def open_calls(server: Server, model: str) -> float:
    told = rows(read_metrics(server.metrics_address))
    return sum(
        one.value for one in told if one.name == "tristage_open_requests" and one.stage == model
    )


def wait_for(met: Callable[[], bool], seconds: float = 10.0) -> bool:
    until_s = time.monotonic() + seconds
    while not met() and time.monotonic() < until_s:
        time.sleep(0.05)
    return met()


@pytest.mark.parametrize("model", ["listen", "live"])
def test_an_order_is_heard_and_in_a_live_call_answered(server: Server, model: str) -> None:
    with calling(server, model, f"order-{model}") as line:
        line.say_all(order(1), sizes=repeat(3200), start=True, end=True)
        events = line.ended()
    heard = next(one["text"] for one in events if one["type"] == "transcript")
    said = "Hi, I would like two cheeseburgers and a large Coke please."
    assert word_error_rate(said, heard) <= 0.1
    answer = [] if model == "listen" else ["answered"]
    assert [kind for kind in kinds(events) if kind != "audio"] == [
        "speech_started",
        "speech_ended",
        "transcript",
        *answer,
        "closed",
    ]
    if model == "live":
        assert "cheeseburger" in events[-2]["said"]


def test_odd_chunks_are_heard_as_one(server: Server) -> None:
    """Bit for bit the same sound: the same places, and the same words."""
    random = Random(3)
    told = []
    for sizes in (repeat(SECOND), iter(lambda: random.randrange(1, 9001), 0)):
        with calling(server, "listen", f"odd-{len(told)}") as line:
            line.say_all(order(2), sizes=sizes, start=True, end=True)
            told.append([(one.get("at_ms"), one.get("text")) for one in line.ended()])
    assert told[0] == told[1]


def test_callers_on_one_server_are_heard_apart(server: Server) -> None:
    texts = {}
    lines = [Line(server.grpc_address, "listen", f"apart-{one}", 700 + one) for one in (1, 2, 4)]
    sounds = [order(one) for one in (1, 2, 4)]
    try:
        for at in range(0, max(map(len, sounds)), 3200):
            for line, sound in zip(lines, sounds, strict=True):
                if at < len(sound):
                    line.say(sound[at : at + 3200], start=not at, end=at + 3200 >= len(sound))
        for line in lines:
            line.ended()
            texts[line.call] = line.until("transcript")["text"].lower()
    finally:
        for line in lines:
            line.close()
    assert "cheeseburger" in texts["apart-1"]
    assert "chicken sandwich" in texts["apart-2"]
    assert "small coffee" in texts["apart-4"]


@pytest.mark.parametrize("model", ["listen", "live"])
def test_a_chunk_of_no_call_is_an_error_and_the_stream_goes_on(server: Server, model: str) -> None:
    """Public case E5: no START; behind the END; and the next call on the same stream is served."""
    with calling(server, model, f"lost-{model}") as line:
        line.ended(line.say())
        line.say(start=True)
        line.ended(line.say(end=True))
        line.ended()
        line.ended(line.say())
        assert len(line.errors) == 2
        line.answered.clear()
        line.say(start=True, end=True)
        line.ended()
        assert kinds(line.events) == 2 * ["no_speech", "closed"]


@pytest.mark.parametrize("model", ["listen", "live"])
def test_of_two_callers_with_one_id_the_second_is_refused(server: Server, model: str) -> None:
    with (
        calling(server, model, f"first-{model}", 4711) as first,
        calling(server, model, f"second-{model}", 4711) as second,
    ):
        first.say_all(order(3)[:SECOND], sizes=repeat(3200), start=True, end=False)
        second.say(start=True)
        second.ended()
        assert "another request id" in second.errors[second.call]
        first.say_all(order(3)[SECOND:], sizes=repeat(3200), start=False, end=True)
        events = first.ended()
    assert "pizza" in next(one["text"] for one in events if one["type"] == "transcript").lower()


@pytest.mark.parametrize("model", ["listen", "live"])
def test_callers_who_vanish_leave_room_for_others(server: Server, model: str) -> None:
    """Public case E7: 20 calls are abandoned, and 20 more are served."""
    for round_ in range(2):
        lines = [
            Line(server.grpc_address, model, f"gone-{model}-{round_}-{one}", 9000 + one)
            for one in range(20)
        ]
        for line in lines:
            line.say(bytes(3200), start=True)
        for line in lines:
            line.ended(line.say(bytes(3200)))
            assert not line.errors
            line.close()
        assert wait_for(lambda: not open_calls(server, model))


def test_speech_into_an_answer_stops_it_and_is_answered(server: Server) -> None:
    """Public case M1: nothing of the turn that was interrupted comes after that was told."""
    with calling(server, "live", "barge") as line:
        line.say_all(order(1), sizes=repeat(3200), start=True, end=False)
        turn = line.until("audio", 2)["turn"]
        line.say_all(order(4), sizes=repeat(3200), start=False, end=True)
        events = line.ended()
    told = kinds(events)
    assert told.index("paused") < told.index("interrupted")
    behind = events[told.index("interrupted") + 1 :]
    assert {one["turn"] for one in behind if one["type"] == "audio"} == {"barge.2"}
    assert next(one["turn"] for one in events if one["type"] == "interrupted") == turn
    assert told[-2:] == ["answered", "closed"]
    assert wait_for(lambda: not open_calls(server, "turn"))


def test_a_caller_who_vanishes_in_an_answer_stops_all_stages(server: Server) -> None:
    with calling(server, "live", "leaver") as line:
        line.say_all(order(1), sizes=repeat(3200), start=True, end=False)
        line.until("audio")
    for stage in ("live", "turn", "think", "prosody", "acoustic"):
        assert wait_for(lambda stage=stage: not open_calls(server, stage)), stage


STEPS = [
    ("a", False, False),
    ("a", True, False),
    ("a", False, False),
    ("b", False, True),
    ("b", True, True),
    ("b", False, False),
    ("a", True, False),
    ("a", False, True),
    ("a", False, True),
    ("a", True, True),
    ("a", True, False),
    ("b", True, False),
    ("a", False, True),
    ("b", False, True),
]
"""(sequence, START, END): begun, gone on, ended, begun anew, used again, and each of it wrongly."""


def test_our_rules_of_sequences_are_the_servers(server: Server) -> None:
    """What `Sequences` takes and refuses is what the server takes and refuses for `vad`, which has
    no rules of its own."""
    import tritonclient.grpc as triton
    from tritonclient.utils import InferenceServerException

    ours: Sequences[int] = Sequences(most=8, idle_s=60)
    taken: list[list[bool]] = [[], []]
    window = triton.InferInput("AUDIO", [1, 512], "FP32")
    window.set_data_from_numpy(np.zeros((1, 512), np.float32))
    with triton.InferenceServerClient(server.grpc_address) as client:
        for number, (key, start, end) in enumerate(STEPS):
            taken[0].append(True)
            try:
                client.infer(
                    "vad",
                    [window],
                    sequence_id=f"rules-{key}",
                    sequence_start=start,
                    sequence_end=end,
                )
            except InferenceServerException:
                taken[0][-1] = False
            taken[1].append(True)
            try:
                item = number
                if start:
                    ours.begin(key, "one", 0.0, item)
                else:
                    item = ours.go_on(key, "one", 0.0)
                if end:
                    ours.end(key, item)
            except Refused:
                taken[1][-1] = False
    assert taken[0] == taken[1]
    assert False in taken[0]
