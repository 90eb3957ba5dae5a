"""A turn whose process has died ends at its caller, though the server never says so."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from client.pulse import MOST, SILENT_S, SURE_S, UPLINK_BYTES_PER_S, Pulse, Pulses
from client.turns import AsyncTurnClient, TurnClient
from python_backends.bridge.backend import MAX_ORDER_CHARS
from python_backends.errors import StageFailed
from python_backends.front_door.turn import MAX_TURN_CHARS
from tests.unit.fake_triton import (
    AUDIO,
    Message,
    chunk,
    end,
    message,
    one_chunk_then_silence,
    serving,
    two_pieces,
)


class Stream:
    """One that only remembers how it was ended."""

    def __init__(self, turn: str) -> None:
        self.pulse = Pulse(turn, 0.0)
        self.error: StageFailed | None = None

    def break_off(self, error: StageFailed) -> None:
        self.error = error


def test_a_turn_is_asked_after_a_silence_and_given_up_when_it_is_gone_twice() -> None:
    pulse = Pulse("t", 0.0)
    assert not pulse.is_due(SILENT_S - 0.01)
    assert pulse.is_due(SILENT_S)
    assert pulse.unknown(1.0) is None
    assert not pulse.is_due(1.0 + SURE_S / 2)
    verdict = pulse.unknown(1.2)
    assert verdict is not None
    assert (verdict.reason, verdict.turn) == ("ended", "t")


def test_a_word_in_between_or_a_server_that_cannot_say_is_no_proof() -> None:
    pulse = Pulse("t", 0.0)
    assert pulse.unknown(1.0) is None
    pulse.heard(1.05)
    assert pulse.unknown(2.0) is None
    pulse.heard(2.2)
    assert pulse.unknown(3.0) is None
    pulse.unclear(3.1)
    assert not pulse.is_due(3.1)
    assert pulse.is_due(3.1 + SURE_S)


def test_nobody_asks_while_the_caller_is_busy_with_what_came() -> None:
    pulse = Pulse("t", 0.0)
    pulse.rest()
    assert not pulse.is_due(100.0)
    for late in (pulse.known, pulse.unclear, pulse.unknown, pulse.unknown):
        assert late(100.0) is None
    assert not pulse.is_due(200.0), "an answer on its way changes nothing"
    pulse.heard(200.0)
    assert pulse.is_due(200.0 + SILENT_S)


def test_a_turn_that_is_still_being_sent_is_not_gone() -> None:
    pulse = Pulse("t", 0.0, upload_bytes=2 * UPLINK_BYTES_PER_S)
    assert [pulse.unknown(now) for now in (0.3, 0.4, 1.9)] == [None] * 3
    assert pulse.unknown(2.0) is None
    assert pulse.unknown(2.1) is not None
    known = Pulse("t", 0.0, upload_bytes=2 * UPLINK_BYTES_PER_S)
    known.known(0.3)
    assert known.unknown(0.7) is None
    assert known.unknown(0.8) is not None


def test_turns_are_taken_along_but_the_second_question_waits_its_time() -> None:
    soon, missed = Pulse("a", 0.0), Pulse("b", 0.0)
    assert soon.is_almost_due(SILENT_S - SURE_S / 2)
    assert missed.unknown(1.0) is None
    assert not missed.is_almost_due(1.0 + SURE_S / 2)
    assert missed.is_almost_due(1.0 + SURE_S)


def test_who_was_asked_after_longest_ago_comes_first() -> None:
    pulses, streams = Pulses("turn"), [Stream(f"{n:03}") for n in range(2 * MOST)]
    for n, stream in enumerate(streams):
        stream.pulse.heard(0.001 * (2 * MOST - n))
        pulses.add(stream)
    question = pulses.question(SILENT_S + 1.0)
    assert question is not None
    assert set(question.turns) == {f"{n:03}" for n in range(MOST, 2 * MOST)}


def test_all_silent_turns_are_asked_after_at_once_and_those_that_are_gone_are_ended() -> None:
    pulses, streams = Pulses("turn"), [Stream(str(n)) for n in range(3)]
    for stream in streams:
        pulses.add(stream)
    assert pulses.question(SILENT_S - 0.01) is None
    streams[2].pulse.heard(SILENT_S)
    question = pulses.question(SILENT_S)
    assert question is not None
    assert sorted(question.turns) == ["0", "1"]
    pulses.answered(["0", "1"], None, 0.4)
    for now in (0.5, 0.6):
        pulses.answered(["0", "1"], {"1"}, now)
    assert [stream.error is not None for stream in streams] == [False, True, False]
    assert len(pulses) == 2


def test_a_question_fits_into_one_order_however_long_the_ids_are() -> None:
    pulses = Pulses("turn")
    streams = [Stream(f"{n:03}" + chr(0x1F600) * (MAX_TURN_CHARS - 3)) for n in range(MOST + 1)]
    for stream in streams:
        pulses.add(stream)
    question = pulses.question(SILENT_S)
    assert question is not None
    assert len(question.turns) == MOST
    assert len(question.request.raw_input_contents[0]) - 4 <= MAX_ORDER_CHARS


def forgetful(request: Any, context: Any) -> Iterator[Message]:
    """Begins a turn, and knows of none when it is asked."""
    if request.inputs[0].name == "CONTROL":
        order = json.loads(request.raw_input_contents[0][4:])
        events = np.array([[json.dumps({"gone": order["open"]}).encode()]], np.object_)
        yield message(request, final=True, EVENTS=events)
    else:
        yield from one_chunk_then_silence(request, context)


def faithful(request: Any, context: Any) -> Iterator[Message]:
    """Takes its time, and knows the turn when it is asked."""
    if request.inputs[0].name == "CONTROL":
        yield message(request, final=True)
    else:
        yield chunk(request, 0, 0, 3)
        time.sleep(3 * SILENT_S)
        yield end(request)


def test_the_sync_client_ends_a_turn_that_is_gone() -> None:
    with serving(forgetful) as (_, address), TurnClient(address) as client:
        stream = client.turn(AUDIO)
        next(stream)
        began = time.monotonic()
        with pytest.raises(StageFailed, match="has ended"):
            next(stream)
        assert time.monotonic() - began < 5.0


def brief(request: Any, context: Any) -> Iterator[Message]:
    """Answers at once, and knows of no turn when it is asked: this one is over."""
    if request.inputs[0].name == "CONTROL":
        yield from forgetful(request, context)
    else:
        yield from two_pieces(request, context)


def test_a_caller_who_takes_time_over_each_chunk_gets_all_of_them() -> None:
    async def run(address: str) -> int:
        got = 0
        async with AsyncTurnClient(address) as client, client.turn(AUDIO) as stream:
            async for _ in stream:
                got += 1
                await asyncio.sleep(3 * SILENT_S)
        return got

    with serving(brief) as (_, address):
        assert asyncio.run(run(address)) == 3
        with TurnClient(address) as client:
            stream = client.turn(AUDIO)
            time.sleep(3 * SILENT_S)
            assert len([time.sleep(3 * SILENT_S) for _ in stream]) == 3


def test_the_async_client_ends_a_turn_that_is_gone() -> None:
    async def run(address: str) -> None:
        async with AsyncTurnClient(address) as client, client.turn(AUDIO) as stream:
            await anext(stream)
            with pytest.raises(StageFailed, match="has ended"):
                await anext(stream)

    with serving(forgetful) as (_, address):
        asyncio.run(run(address))


def test_a_turn_that_is_only_slow_goes_on() -> None:
    async def run(address: str) -> int:
        async with AsyncTurnClient(address) as client, client.turn(AUDIO) as stream:
            return len([one async for one in stream])

    with serving(faithful) as (fake, address):
        assert asyncio.run(run(address)) == 1
        with TurnClient(address) as client:
            assert len(list(client.turn(AUDIO))) == 1
        assert sum(request.inputs[0].name == "CONTROL" for request in fake.requests) >= 2
