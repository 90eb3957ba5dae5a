"""The front door relays, keeps ids apart, and stops every stage when a turn does not end well."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends import peer
from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Request
from python_backends.bridge.inbox import Event
from python_backends.bridge.options import MAX_SESSION_CHARS
from python_backends.errors import StageError
from python_backends.front_door.loop import Door
from python_backends.front_door.settings import DoorSettings
from python_backends.front_door.turn import MAX_HEARD_CHARS, MAX_TURN_CHARS, TENSORS
from python_backends.walking.route import Route, Step
from tests import fakes
from tests.unit.fake_triton import (
    FakeServer,
    Message,
    Script,
    chunk,
    end,
    failure,
    message,
    one_chunk_then_silence,
    serving,
    two_pieces,
)

STAGES = ("encode", "think")
SETTINGS = DoorSettings(
    ensemble="voice_turn",
    server="",
    stages=",".join(STAGES),
    no_progress_ms=5000,
    max_turns=2,
    max_waiting=1,
    hold_ms=300,
)
ANSWER = ("PIECE", "TEXT", "HEARD", "STATUS", "EVENTS", "SPEECH", "SAMPLE_RATE")
ONE_STEP = Route(
    (Step("voice_turn", {name: name for name in TENSORS}, {name: name for name in ANSWER}),),
    ANSWER,
)


def door(settings: DoorSettings, address: str, route: Route = ONE_STEP) -> Door:
    """Stages have no processes here."""
    return Door(settings, address, route=route, find=lambda models: [])


class Screened(Inbox):
    """What the model class does: a turn is offered before the loop is told."""

    def __init__(self, of: Door) -> None:
        super().__init__()
        self.door = of

    def put(self, event: Event) -> None:
        if isinstance(event, Arrived):
            try:
                self.door.offer(event.request)
            except StageError as error:
                event.request.fail(error)
                return
        super().put(event)


@contextmanager
def opened(
    script: Script, settings: DoorSettings = SETTINGS, route: Route = ONE_STEP
) -> Iterator[tuple[FakeServer, Screened]]:
    """A door in front of a scripted server; cancels are acknowledged."""

    def scripted(request: Any, context: Any) -> Iterator[Message]:
        if request.model_name in STAGES:
            yield message(request, final=True)
        else:
            yield from script(request, context)

    with serving(scripted) as (fake, address):
        served = door(settings, address, route)
        inbox = Screened(served)
        thread = threading.Thread(target=served.run, args=[inbox])
        thread.start()
        try:
            yield fake, inbox
        finally:
            inbox.put(Closed())
            thread.join()


def arrive(
    inbox: Inbox,
    turn: str = "t",
    *,
    audio: bool = True,
    inputs: Mapping[str, NDArray[Any]] = MappingProxyType({}),
    **parameters: Any,
) -> fakes.InferenceResponseSender:
    given = {"AUDIO": np.zeros((1, 160), np.float32)} if audio else {"HISTORY": fakes.text("[]")}
    native = fakes.arriving({**given, **inputs}, request_id=turn, parameters=parameters)
    request = Request(native, "turn", lambda _: None)
    request.parse_options()
    inbox.put(Arrived(request))
    return native.sender


def slow_pieces(request: Any, context: Any) -> Iterator[Message]:
    for one in two_pieces(request, context):
        time.sleep(0.05)
        yield one


def history_of(request: Any) -> list[tuple[str, str]] | None:
    """What a stage was told has been said before."""
    for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True):
        if tensor.name == "HISTORY":
            return [(line["role"], line["text"]) for line in json.loads(raw[4:])]
    return None


def cancelled_stages(fake: FakeServer) -> set[str]:
    return {request.model_name for request in fake.requests} - {"voice_turn"}


def test_chunks_are_relayed_in_order_and_the_turn_ends_once() -> None:
    with opened(two_pieces) as (fake, inbox):
        sender = arrive(inbox)
        places = [values["PIECE"][0, :2].tolist() for values in sender.values()]
    assert places == [[0, 0], [0, 1], [1, 0]]
    assert sender.finals == 1
    assert cancelled_stages(fake) == set()


def test_the_door_adds_its_own_span() -> None:
    with opened(two_pieces) as (_, inbox):
        events = arrive(inbox).values()[0]["EVENTS"][0]
    assert b'"stage":"turn"' in events[-1]
    assert len(events) == 2


def test_options_are_passed_on() -> None:
    with opened(two_pieces) as (fake, inbox):
        arrive(inbox, temperature="0.5", stream=False, seed=3).wait()
    parameters = fake.requests[0].parameters
    assert parameters["temperature"].string_param == "0.5"
    assert parameters["seed"].int64_param == 3
    assert not parameters["stream"].bool_param
    assert "stream" in parameters


def test_two_turns_of_one_id_are_two_turns_behind_the_door() -> None:
    with opened(two_pieces) as (fake, inbox):
        senders = [arrive(inbox, "1"), arrive(inbox, "1")]
        assert [len(sender.values()) for sender in senders] == [3, 3]
    ids = {request.id for request in fake.requests}
    assert len(ids) == 2
    assert all(one.startswith("1~") for one in ids)


def test_a_caller_that_is_gone_stops_every_stage() -> None:
    with opened(one_chunk_then_silence) as (fake, inbox):
        sender = arrive(inbox)
        fake.arrived.acquire()
        sender.cancelled = True
        assert "code=CANCELLED" in sender.error()
        assert cancelled_stages(fake) == set(STAGES)


def test_a_cancel_by_id_stops_every_stage() -> None:
    with opened(one_chunk_then_silence) as (fake, inbox):
        sender = arrive(inbox, "mine")
        fake.arrived.acquire()
        inbox.put(CancelTurn("another"))
        inbox.put(CancelTurn("mine"))
        assert "code=CANCELLED" in sender.error()
        orders = [r for r in fake.requests if r.model_name in STAGES]
        assert all(b'"cancel": "mine~' in r.raw_input_contents[0] for r in orders)


def test_a_cancel_that_comes_together_with_its_turn_ends_it_and_frees_its_place() -> None:
    settings = replace(SETTINGS, max_turns=1)
    with serving(two_pieces) as (_, address):
        served = door(settings, address)
        inbox = Screened(served)
        sender = arrive(inbox, "mine")
        inbox.put(CancelTurn("mine"))
        thread = threading.Thread(target=served.run, args=[inbox])
        thread.start()
        assert "code=CANCELLED" in sender.error()
        assert len(arrive(inbox, "next").values()) == 3
        inbox.put(Closed())
        thread.join()


@pytest.mark.parametrize("ticks", range(4))
def test_a_cancel_is_not_lost_to_a_message_that_comes_at_the_same_time(ticks: int) -> None:
    class Call:
        def __init__(self) -> None:
            self.message: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def read(self) -> str:
            return await self.message

    async def cancelled_or_done() -> bool:
        call = Call()
        task = asyncio.create_task(peer._Call(call, 5.0, "voice_turn").read())
        await asyncio.sleep(0.01)
        call.message.set_result("a chunk")
        for _ in range(ticks):
            await asyncio.sleep(0)
        was_running = task.cancel()
        await asyncio.wait([task])
        return task.cancelled() == was_running

    assert asyncio.run(cancelled_or_done())


def test_what_has_come_while_nobody_read_is_no_silence() -> None:
    class Call:
        def __init__(self) -> None:
            self.messages: asyncio.Queue[str] = asyncio.Queue()
            self.cancelled = asyncio.Event()

        async def read(self) -> str:
            read, cut = (
                asyncio.ensure_future(one) for one in (self.messages.get(), self.cancelled.wait())
            )
            await asyncio.wait([read, cut], return_when=asyncio.FIRST_COMPLETED)
            if cut.done():
                raise asyncio.CancelledError
            cut.cancel()
            return read.result()

        def cancel(self) -> None:
            self.cancelled.set()

    async def busy_reader() -> str:
        call = Call()
        stream = peer._Call(call, 0.05, "voice_turn")
        for told in ("first", "second"):
            call.messages.put_nowait(told)
        assert await stream.read() == "first"
        await asyncio.sleep(0.2)
        assert await stream.read() == "second"
        with pytest.raises(peer.Silent):
            await stream.read()
        return "given up"

    assert asyncio.run(busy_reader()) == "given up"


def test_an_error_of_a_stage_is_passed_on_with_the_callers_id() -> None:
    def failing(request: Any, context: Any) -> Iterator[Message]:
        yield chunk(request, 0, 0, 1)
        yield failure(
            request, f"in ensemble: [tristage code=OVERLOADED stage=think turn={request.id}] full"
        )

    with opened(failing) as (fake, inbox):
        error = arrive(inbox, "mine").error()
        assert cancelled_stages(fake) == set(STAGES)
    assert error == "[tristage code=OVERLOADED stage=think turn=mine] full"


def test_a_stream_without_progress_is_given_up() -> None:
    impatient = replace(SETTINGS, no_progress_ms=50)
    with opened(one_chunk_then_silence, impatient) as (fake, inbox):
        sender = arrive(inbox)
        assert "no progress for 0.05 s" in sender.error()
        assert cancelled_stages(fake) == set(STAGES)


def test_a_stream_that_breaks_after_its_end_has_ended_well() -> None:
    def breaking(request: Any, context: Any) -> Iterator[Message]:
        yield from two_pieces(request, context)
        context.abort(grpc.StatusCode.INTERNAL, "a late fault")

    with opened(breaking) as (fake, inbox):
        sender = arrive(inbox)
        assert len(sender.values()) == 3
        assert sender.error() == ""
        assert cancelled_stages(fake) == set()


def test_a_turn_is_ended_at_its_deadline() -> None:
    with opened(one_chunk_then_silence) as (fake, inbox):
        error = arrive(inbox, deadline_ms=60).error()
        assert "code=DEADLINE_MISSED" in error
        assert "not answered within 60 ms" in error
        assert cancelled_stages(fake) == set(STAGES)


def test_a_server_that_cannot_be_reached_is_an_error() -> None:
    served = door(SETTINGS, "127.0.0.1:1")
    inbox = Screened(served)
    thread = threading.Thread(target=served.run, args=[inbox])
    thread.start()
    sender = arrive(inbox)
    assert "code=STAGE_FAILED" in sender.error()
    inbox.put(Closed())
    thread.join()


def test_one_turn_may_wait_for_a_place_and_one_more_is_refused_with_a_reason() -> None:
    """Public case E9."""
    with opened(one_chunk_then_silence) as (fake, inbox):
        held = [arrive(inbox, f"t{n}") for n in range(2)]
        for _ in held:
            fake.arrived.acquire()
        waiting = arrive(inbox, "waiting")
        refused = arrive(inbox, "refused").error()
        assert "code=OVERLOADED stage=turn reason=queue" in refused
        assert "retry_after_ms=500" in refused
        assert "1 turns wait for a place; at most 1 may" in refused
        held[0].cancelled = True
        fake.arrived.acquire()  # one of the stages that are told
        waiting.cancelled = held[1].cancelled = True
        for sender in (*held, waiting):
            assert "code=CANCELLED" in sender.error()


def test_a_turn_that_waits_can_be_cancelled_and_its_deadline_holds() -> None:
    """Public case E1."""
    with opened(one_chunk_then_silence, replace(SETTINGS, max_turns=1, max_waiting=3)) as (
        fake,
        door,
    ):
        first = arrive(door, "first")
        fake.arrived.acquire()
        hasty, mine, gone = (
            arrive(door, "hasty", deadline_ms=60),
            arrive(door, "mine"),
            arrive(door, "gone"),
        )
        gone.cancelled = True
        door.put(CancelTurn("mine"))
        assert "code=DEADLINE_MISSED" in hasty.error()
        assert "cancelled while it waited" in mine.error()
        assert "left while the turn waited" in gone.error()
        door.put(CancelTurn("first"))
        first.wait()


def test_a_draining_door_serves_those_who_are_in_and_takes_nobody_else() -> None:
    with opened(slow_pieces) as (fake, inbox):
        first = arrive(inbox, "first")
        fake.arrived.acquire()
        inbox.door.drain()
        assert "reason=draining" in arrive(inbox, "late").error()
        assert len(first.values()) == 3


def test_a_turn_that_was_offered_to_the_door_before_is_answered() -> None:
    """As when a bug has ended the loop while the turn arrived."""
    with serving(two_pieces) as (_, address):
        before, served = door(SETTINGS, address), door(SETTINGS, address)
        inbox = Screened(before)
        sender = arrive(inbox)
        inbox.door = served
        thread = threading.Thread(target=served.run, args=[inbox])
        thread.start()
        assert "code=STAGE_FAILED" in sender.error()
        assert len(arrive(inbox, "next").values()) == 3
        inbox.put(Closed())
        thread.join()
        assert "reason=draining" in arrive(inbox, "late").error(), "and none is left with it"


def test_a_fault_of_who_looks_for_leavers_is_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(request: Request) -> bool:
        raise RuntimeError("the server is odd")

    monkeypatch.setattr(Request, "cancelled", property(fails))
    with serving(one_chunk_then_silence) as (_, address):
        served = door(SETTINGS, address)
        inbox = Screened(served)
        sender = arrive(inbox)
        with pytest.raises(RuntimeError, match="odd"):
            served.run(inbox)
    assert "the front door failed while serving" in sender.error()


def test_a_session_without_history_is_remembered_until_the_caller_sends_one() -> None:
    with opened(two_pieces) as (fake, inbox):
        for inputs in ({}, {}, {"HISTORY": fakes.text("[]")}, {"SESSION_ID": fakes.text("other")}):
            arrive(inbox, inputs={"SESSION_ID": fakes.text("mine"), **inputs}).wait()
    told = [history_of(request) for request in fake.requests]
    lines = [("user", "two burgers"), ("assistant", "Piece 0. Piece 1.")]
    assert told == [None, lines, [], None]


def test_a_turn_without_sound_sent_is_refused_before_anything_is_asked() -> None:
    with opened(two_pieces) as (fake, inbox):
        assert "AUDIO is missing" in arrive(inbox, audio=False).error()
        assert not any(request.model_name == "voice_turn" for request in fake.requests)


def test_ids_that_are_too_long_are_refused_before_anything_is_asked() -> None:
    with opened(two_pieces) as (fake, inbox):
        session = {"SESSION_ID": fakes.text("s" * (MAX_SESSION_CHARS + 1))}
        assert "SESSION_ID has 257 characters" in arrive(inbox, inputs=session).error()
        turn = arrive(inbox, "t" * (MAX_TURN_CHARS + 1))
        assert "the request id has 129 characters; at most 128" in turn.error()
        assert not any(request.model_name == "voice_turn" for request in fake.requests)
        session = {"SESSION_ID": fakes.text("s" * MAX_SESSION_CHARS)}
        assert arrive(inbox, "t" * MAX_TURN_CHARS, inputs=session).error() == ""


def test_an_ending_without_tensors_is_not_relayed() -> None:
    def nothing(request: Any, context: Any) -> Iterator[Message]:
        yield end(request)

    with opened(nothing) as (_, inbox):
        sender = arrive(inbox)
        assert sender.wait() == []


def test_a_turn_may_be_sent_as_words_and_need_not_be_listened_to() -> None:
    route = Route(
        (
            Step("encode", {"AUDIO": "AUDIO"}, {"HIDDEN": "hidden"}),
            Step("asr_decode", {"HIDDEN": "hidden"}, {"HEARD": "heard_asr"}),
            Step(
                "voice_turn", {"HEARD": "heard_asr", "HISTORY": "HISTORY"}, ONE_STEP.steps[0].gives
            ),
        ),
        ANSWER,
    )
    with opened(two_pieces, route=route) as (fake, inbox):
        words = {"HEARD": fakes.text("two burgers")}
        assert len(arrive(inbox, audio=False, inputs=words).values()) == 3
        (asked,) = [one for one in fake.requests if one.model_name == "voice_turn"]
        assert [tensor.name for tensor in asked.inputs] == ["HEARD", "HISTORY"]
        assert {one.model_name for one in fake.requests} == {"voice_turn"}


def test_a_turn_is_sound_or_words_and_not_both() -> None:
    with opened(two_pieces) as (_, inbox):
        assert "AUDIO or HEARD" in arrive(inbox, inputs={"HEARD": fakes.text("hello")}).error()
        too_long = {"HEARD": fakes.text("h" * (MAX_HEARD_CHARS + 1))}
        assert "HEARD has 4001" in arrive(inbox, audio=False, inputs=too_long).error()


def test_words_are_refused_where_no_stage_takes_any() -> None:
    with opened(two_pieces) as (_, inbox):
        told = arrive(inbox, audio=False, inputs={"HEARD": fakes.text("hello")}).error()
        assert "no stage of this server takes HEARD" in told
