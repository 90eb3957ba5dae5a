"""Turns on the emulated device, and every message of each: nothing is taken for granted."""

import asyncio
import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, Final

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor

from client.calls import CHANNEL_OPTIONS
from client.pulse import AsyncWatcher, Pulse
from python_backends import wire
from python_backends.errors import StageError, StageFailed, from_text, parse

DOOR: Final = "emu_door"
TIMEOUT_S: Final = 30.0
"""A turn that takes longer hangs: nobody's patience is part of what is measured."""

UNTYPED: Final = "UNTYPED"
UNREACHABLE: Final = "unreachable"
"""Reason of the error that a client makes where no server answers."""

LENGTH_BYTES: Final = 4
"""Before a string."""

OWN_CHANNEL: Final = ("grpc.use_local_subchannel_pool", 1)


@dataclass(eq=False)
class Told:
    """One turn as its caller saw it. Times are time.monotonic_ns."""

    turn_id: str
    token: int
    pulse: Pulse
    sent_ns: int = 0
    end_ns: int = 0
    chunks_ns: list[int] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """TEXT of each response."""

    events: bytes = b""
    """EVENTS of the last response, read when it is asked for: there may be thousands of turns."""

    all_events: list[bytes] | None = None
    """EVENTS of every response, where they are kept."""

    ends: int = 0
    """Final responses and errors: exactly one is right."""

    after: int = 0
    """Messages behind the end."""

    left: bool = False
    """The caller did not wait for the end."""

    error: StageError | None = None
    broken: StageFailed | None = None
    call: Any = None

    def break_off(self, error: StageFailed) -> None:
        """See client.pulse.Watched."""
        self.broken = error
        self.call.cancel()

    @property
    def outcome(self) -> str:
        """ "ok", "left", the code of a typed error, or UNTYPED."""
        if self.left:
            return "left"
        if self.error is None:
            return "ok"
        return self.error.code if self.error.reason != UNTYPED else UNTYPED

    @property
    def answered_once(self) -> bool:
        return self.left or (self.ends == 1 and self.after == 0)

    @property
    def is_its_own(self) -> bool:
        """Whatever was heard is what was said."""
        return all(one == f"token {self.token}" for one in self.heard if one)

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.sent_ns) / 1e9

    @cached_property
    def spans(self) -> list[dict[str, Any]]:
        """What the stages have told of it."""
        return [json.loads(one) for one in deserialize_bytes_tensor(self.events) if one]

    def was_in(self, stage: str) -> tuple[int, int] | None:
        """From arriving at a stage to its last span there."""
        mine = [one for one in self.spans if one["stage"] == stage]
        if not mine:
            return None
        return min(one["start_ns"] for one in mine), max(one["end_ns"] for one in mine)


class Caller:
    """Speaks turns to the front door, each with a token of its own. `keeps_events`: of every
    response, not the last one's alone."""

    def __init__(self, address: str, *, keeps_events: bool = False) -> None:
        self.address = address
        self._keeps_events = keeps_events
        self._tokens = count(1)
        self._channel, self._stub = _dialled(address)
        self._watcher = AsyncWatcher(self._stub, DOOR)

    async def speak(
        self,
        *,
        deadline_ms: int = 0,
        leave_after_s: float | None = None,
        disconnect: bool = False,
    ) -> Told:
        """One turn to its end; `leave_after_s` cancels it then, or cuts its connection."""
        token = next(self._tokens)
        told = Told(f"chaos-{token}", token, Pulse(f"chaos-{token}", time.monotonic()))
        told.all_events = [] if self._keeps_events else None
        request = wire.to_request(
            DOOR,
            {"AUDIO": np.array([[0, token, 0, 0]], np.float32)},
            turn=told.turn_id,
            parameters={"deadline_ms": deadline_ms} if deadline_ms else {},
        )
        channel, stub = _dialled(self.address) if disconnect else (None, self._stub)
        told.sent_ns = time.monotonic_ns()
        told.call = stub.ModelStreamInfer(iter([request]), timeout=TIMEOUT_S)
        self._watcher.add(told)
        reading = asyncio.create_task(_read(told))
        try:
            await asyncio.wait([reading], timeout=leave_after_s)
            if not reading.done():
                told.left = True
                told.call.cancel()
            if channel is not None:
                await channel.close()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
        finally:
            self._watcher.discard(told)
            told.end_ns = time.monotonic_ns()
        return told

    async def close(self) -> None:
        await self._channel.close()


async def crowd(caller: Caller, people: int, until_s: float, found: list[Told]) -> None:
    """People who speak again as soon as they are answered, until time.monotonic is `until_s`."""

    async def person() -> None:
        while time.monotonic() < until_s:
            told = await caller.speak()
            found.append(told)
            if told.error is not None:
                await asyncio.sleep((told.error.retry_after_ms or 100) / 1000)

    await asyncio.gather(*(person() for _ in range(people)))


def percentile(values: Sequence[float], q: float) -> float:
    """0 of none."""
    return float(np.percentile(values, q)) if len(values) else 0.0


def _dialled(address: str) -> tuple[Any, Any]:
    options = [*CHANNEL_OPTIONS, OWN_CHANNEL]
    channel = grpc.aio.insecure_channel(address, options=options)
    return channel, service_pb2_grpc.GRPCInferenceServiceStub(channel)


async def _read(told: Told) -> None:
    try:
        async for message in told.call:
            told.pulse.heard(time.monotonic())
            _take(told, message)
        if not told.ends:
            told.error = StageFailed("the stream ended without a final response", reason=UNTYPED)
    except asyncio.CancelledError:
        if told.broken is not None:
            told.error, told.ends = told.broken, told.ends + 1
        elif not told.left:
            raise
    except grpc.RpcError as fault:
        if not told.left:
            told.ends += 1
            away = fault.code() is grpc.StatusCode.UNAVAILABLE
            told.error = parse(fault.details() or "") or StageFailed(
                f"{fault.code()}: {fault.details()}", reason=UNREACHABLE if away else UNTYPED
            )


def _take(told: Told, message: service_pb2.ModelStreamInferResponse) -> None:
    if told.ends:
        told.after += 1
        return
    if message.error_message:
        told.ends += 1
        typed = parse(message.error_message)
        told.error = typed or StageFailed(from_text(message.error_message).message, reason=UNTYPED)
        return
    response = message.infer_response
    if response.outputs:
        told.chunks_ns.append(time.monotonic_ns())
        names = [one.name for one in response.outputs]
        raw = dict(zip(names, response.raw_output_contents, strict=True))
        told.heard.append(raw["HEARD"][LENGTH_BYTES:].decode())
        told.said.append(raw["TEXT"][LENGTH_BYTES:].decode())
        told.events = raw["EVENTS"] or told.events
        if told.all_events is not None:
            told.all_events.append(raw["EVENTS"])
    if wire.is_final(response):
        told.ends += 1
