"""The asyncio client of `live` and `listen`: one gRPC stream a call."""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self
from weakref import WeakSet

import grpc
import grpc.aio
import numpy as np
import numpy.typing as npt
from tritonclient.grpc import service_pb2_grpc

from client.calls import CLOSE_S, TIMEOUT_S, dial_async, error_of
from client.live.events import LiveEvent
from client.live.reading import CallReader
from client.live.requests import chunk_request, pcm_bytes
from client.requests import TurnOptions, chosen_options, new_turn_id
from client.traceparent import checked
from python_backends.errors import Cancelled, StageError, StageFailed
from python_backends.ordering.prompt import Utterance

UNANSWERED_S = 5.0
"""A chunk is answered when it has been listened to; where nothing comes for so long instead, the
process of a stage has died, of which the server says nothing."""

LOOKS = 4
"""In that time; it takes two in a row, since what came while this event loop was held up is found
only behind the first."""


class LiveCall(AsyncIterator[LiveEvent]):
    """Events in order; raises a StageError unless the call is closed as it should, once.

    What is wrong with one chunk is a "failed" event without a turn, and the call goes on. Tasks of
    its own send and read, so that whoever gives up waiting for an event loses none, and anybody may
    send at any time. `async with` ends the call at the block's end at the latest.
    """

    def __init__(self, stub: Any, model: str, call_id: str, first: Mapping[str, Any]) -> None:
        """`first`: what goes with the first chunk only, as for `chunk_request`."""
        self.call_id = call_id
        self._model = model
        self._first = first
        self._number = 0
        self._hung_up = self._over = self._was_late = False
        self._why: StageError | None = None
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        """None behind the last."""

        self._events: asyncio.Queue[LiveEvent | StageError | None] = asyncio.Queue()
        """None behind the last, for ever."""

        self._reader = CallReader(call_id, model)
        self._call = stub.ModelStreamInfer()
        self._loop = asyncio.get_running_loop()
        self._writing = self._loop.create_task(self._write())
        self._reading = self._loop.create_task(self._read())
        self._timer = self._loop.call_later(UNANSWERED_S / LOOKS, self._look)

    @property
    def lags_ms(self) -> deque[float]:
        """How long the last chunks took to be listened to."""
        return self._reader.lags_ms

    @property
    def ended(self) -> bool:
        """Nothing can be sent any more: it has been hung up, or is over."""
        return self._hung_up or self._over

    async def send(
        self, pcm: bytes | npt.NDArray[np.int16], *, report: Mapping[str, Any] | None = None
    ) -> None:
        """The next sound: 16 bit mono, samples or any number of little-endian bytes. `report`: of
        what has been played, as of `Playback.report`.

        It is sent in the background. InvalidInput for other sound; where the call is over, what it
        is over for.
        """
        self._put(pcm_bytes(pcm), report=report)

    async def stop_answer(self) -> None:
        """Have the answer under way broken off, as speech would."""
        self._put(b"", report={"stop": True})

    async def hang_up(self) -> None:
        """No more sound: what was said last is still answered."""
        if not self.ended:
            self._put(b"", end=True)
            self._requests.put_nowait(None)

    def cancel(self) -> None:
        """End the call at once, here and on the server; whoever iterates gets Cancelled."""
        self._break_off(Cancelled("cancelled here", stage="client", turn=self.call_id))

    async def __anext__(self) -> LiveEvent:
        found = await self._events.get()
        if isinstance(found, LiveEvent):
            return found
        if found is None:
            self._events.put_nowait(None)
            raise StopAsyncIteration
        raise found

    def _put(
        self, pcm: bytes, *, report: Mapping[str, Any] | None = None, end: bool = False
    ) -> None:
        if self._why is not None:
            raise self._why
        if self.ended:
            raise self._failed("the call has been hung up")
        first = {} if self._number else self._first
        request = chunk_request(
            self._model, self.call_id, self._number, pcm, report=report, end=end, **first
        )
        self._reader.sent(request.id, time.monotonic_ns())
        self._number += 1
        self._hung_up = end
        self._requests.put_nowait(request)

    async def _write(self) -> None:
        """What sending fails of, reading tells."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while (request := await self._requests.get()) is not None:
                await self._call.write(request)
            await self._call.done_writing()

    async def _read(self) -> None:
        """Read until the server ends the stream, also behind the end of the call: of a stream that
        is cut off there it keeps the models loaded for ever."""
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                self._take(message)
            self._end(self._failed("the stream ended before the call was closed"))
        except grpc.aio.AioRpcError as fault:
            self._end(error_of(fault, self.call_id, TIMEOUT_S))
        except asyncio.CancelledError:
            self.cancel()
        finally:
            self._end(self._failed("what came could not be read"))
            self._timer.cancel()
            self._writing.cancel()
            self._call.cancel()

    def _take(self, message: Any) -> None:
        if self._over:
            return
        try:
            event = self._reader.take(message, time.monotonic_ns())
        except StageError as error:
            self._end(error.at("", self.call_id))
            return
        if event is not None:
            self._events.put_nowait(event)
        if self._reader.over:
            self._end(None)

    def _look(self) -> None:
        allowed_s = TIMEOUT_S if self._hung_up else math.inf
        if self._reader.waits:
            allowed_s = UNANSWERED_S
        is_late = time.monotonic_ns() - self._reader.heard_ns > allowed_s * 1e9
        if is_late and self._was_late:
            self._break_off(self._failed(f"nothing was answered for {allowed_s:g} s"))
            return
        self._was_late = is_late
        self._timer = self._loop.call_later(UNANSWERED_S / LOOKS, self._look)

    def _break_off(self, error: StageError) -> None:
        if not self._over:
            self._end(error)
            self._call.cancel()

    def _end(self, error: StageError | None) -> None:
        """The call is over; what ends it first is told. The server has a while to end the stream,
        which it does when no more requests are to come."""
        if self._over:
            return
        self._over, self._why = True, error
        if error is not None:
            self._events.put_nowait(error)
        self._events.put_nowait(None)
        while not self._requests.empty():
            self._requests.get_nowait()
        self._requests.put_nowait(None)
        self._timer.cancel()
        self._timer = self._loop.call_later(CLOSE_S, self._call.cancel)

    def _failed(self, how: str) -> StageError:
        return StageFailed(how, stage="client", turn=self.call_id)

    async def aclose(self) -> None:
        """End the call unless it is over; return when the stream is closed."""
        self.cancel()
        for task in (await asyncio.wait([self._reading, self._writing]))[0]:
            if not task.cancelled():
                task.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *fault: object) -> None:
        await self.aclose()


class LiveClient:
    """Calls to one server; make it inside the event loop that uses it."""

    def __init__(
        self,
        address: str,
        *,
        model: str = "live",
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        """`model`: "live", or "listen" to be told what was said and nothing more. `credentials`: of
        `client.turns.credentials`; None: plaintext."""
        self.model = model
        self._channel = dial_async(address, credentials)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._calls: WeakSet[LiveCall] = WeakSet()

    def call(
        self,
        *,
        rate_hz: int = 16_000,
        history: Sequence[Utterance] = (),
        call_id: str | None = None,
        partials: bool = False,
        lead_ms: int | None = None,
        traceparent: str | None = None,
        options: TurnOptions | None = None,
    ) -> LiveCall:
        """A call; it begins with the first chunk.

        `rate_hz`: 8000 to 48000, of the sound that is sent. `history`: what was said before.
        `partials`: tell what was said so far while it is being said. `lead_ms`: how far ahead of
        being heard answers are sent at most. `traceparent`: the trace (W3C) that every turn belongs
        to; InvalidInput when it is none. `options`: of every turn.
        """
        parameters = chosen_options(options or TurnOptions())
        if rate_hz != 16_000:
            parameters["rate_hz"] = rate_hz
        if partials:
            parameters["partials"] = True
        if lead_ms is not None:
            parameters["lead_ms"] = lead_ms
        if traceparent is not None:
            parameters["traceparent"] = checked(traceparent)
        first = {"parameters": parameters, "history": history}
        call = LiveCall(self._stub, self.model, call_id or new_turn_id(), first)
        self._calls.add(call)
        return call

    async def aclose(self) -> None:
        """Cancel open calls and close the channel."""
        await asyncio.gather(*(call.aclose() for call in self._calls))
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *fault: object) -> None:
        await self.aclose()
