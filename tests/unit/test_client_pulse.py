"""A turn whose process has died ends at its caller, though the server never says so."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from client.pulse import SILENT_S, SURE_S, Pulse
from client.turns import AsyncTurnClient, TurnClient
from python_backends.errors import StageFailed
from tests.unit.fake_triton import (
    AUDIO,
    Message,
    chunk,
    end,
    failure,
    message,
    one_chunk_then_silence,
    serving,
)

GONE = StageFailed("no such turn", reason="ended")


def test_a_turn_is_asked_after_a_silence_and_given_up_when_it_is_gone_twice() -> None:
    pulse = Pulse("t", 0.0)
    assert not pulse.is_due(SILENT_S - 0.01)
    assert pulse.is_due(SILENT_S)
    assert pulse.answered(GONE, 1.0) is None
    assert not pulse.is_due(1.0 + SURE_S / 2)
    verdict = pulse.answered(GONE, 1.2)
    assert verdict is not None
    assert (verdict.reason, verdict.turn) == ("ended", "t")


def test_a_word_in_between_or_a_server_that_cannot_say_is_no_proof() -> None:
    pulse = Pulse("t", 0.0)
    assert pulse.answered(GONE, 1.0) is None
    pulse.heard(1.05)
    assert pulse.answered(GONE, 2.0) is None
    assert pulse.answered(None, 2.2) is None
    assert pulse.answered(GONE, 3.0) is None
    assert all(pulse.answered(StageFailed("loading"), 4.0) is None for _ in range(5))


def forgetful(request: Any, context: Any) -> Iterator[Message]:
    """Begins a turn, and knows of none when it is asked."""
    if request.inputs[0].name == "CONTROL":
        assert "open" in json.loads(request.raw_input_contents[0][4:])
        yield failure(request, StageFailed("no such turn", reason="ended").to_wire())
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
