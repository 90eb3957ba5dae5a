"""The asyncio client; see `client.turns` for what both promise."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Self

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2_grpc

from client.calls import CLOSE_S, TIMEOUT_S, dial_async, error_of
from client.pulse import AsyncWatcher, Pulse
from client.requests import (
    Floats,
    TurnOptions,
    speak_request,
    traceparent_of,
    transcribe_request,
    turn_request,
)
from client.responses import Transcript, TurnChunk, TurnReader, read_transcript
from python_backends.errors import Cancelled, StageFailed
from python_backends.ordering.prompt import Utterance


class AsyncTurnStream(AsyncIterator[TurnChunk]):
    """`TurnStream` for asyncio; `async with` stops the turn at the block's end at the latest."""

    def __init__(
        self,
        call: Any,
        request: Any,
        sent_ns: int,
        timeout_s: float,
        watcher: AsyncWatcher | None = None,
    ) -> None:
        self.turn_id = str(request.id)
        self.traceparent = traceparent_of(request)
        self.sent_ns = sent_ns
        self._call = call
        self._messages = aiter(call)
        self._timeout_s = timeout_s
        self._reader = TurnReader(self.turn_id)
        self._cancelled = False
        self._done = False
        self.pulse = Pulse(self.turn_id, time.monotonic(), request.ByteSize())
        self.pulse.rest()
        self._broken: StageFailed | None = None
        self._watcher = watcher
        if watcher is not None:
            watcher.add(self)

    def break_off(self, error: StageFailed) -> None:
        """End the stream with this error."""
        self._broken = error
        self._call.cancel()

    async def __anext__(self) -> TurnChunk:
        try:
            return await self._read()
        except grpc.RpcError as fault:
            raise error_of(fault, self.turn_id, self._timeout_s) from fault
        except asyncio.CancelledError as fault:
            if self._broken is not None:
                raise self._broken from fault
            if self._cancelled:
                raise Cancelled("cancelled here", stage="client", turn=self.turn_id) from fault
            raise
        finally:
            if self._done:
                self._end()

    def _end(self) -> None:
        self._call.cancel()
        if self._watcher is not None:
            self._watcher.discard(self)

    async def _read(self) -> TurnChunk:
        if self._done:
            raise StopAsyncIteration
        self._done = True
        self.pulse.heard(time.monotonic())
        async for message in self._messages:
            self.pulse.heard(time.monotonic())
            if message.error_message:
                await self._read_to_end()
            chunk = self._reader.take(message, time.monotonic_ns())
            if chunk is not None:
                self._done = False
                self.pulse.rest()
                return chunk
        self._reader.close()
        raise StopAsyncIteration

    async def _read_to_end(self) -> None:
        """As in `TurnStream`."""
        with suppress(grpc.RpcError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                async for _ in self._messages:
                    pass

    def cancel(self) -> None:
        """Stop the turn here and on the server; a task that waits for a chunk gets Cancelled."""
        self._cancelled = True
        self._call.cancel()

    async def aclose(self) -> None:
        """Stop the turn unless it has ended."""
        self._done = True
        self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *fault: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if not self._done:
            self._call.cancel()


class AsyncTurnClient:
    """`TurnClient` for asyncio; make it inside the event loop that uses it."""

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = TIMEOUT_S,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        """`credentials`: of `client.turns.credentials`; None: plaintext."""
        self.timeout_s = timeout_s
        self._channel = dial_async(address, credentials)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._watcher = AsyncWatcher(self._stub, "turn")

    def turn(
        self,
        audio: Floats,
        history: Sequence[Utterance] = (),
        *,
        turn_id: str | None = None,
        session_id: str | None = None,
        traceparent: str | None = None,
        options: TurnOptions | None = None,
    ) -> AsyncTurnStream:
        """Say `audio`, float32 [samples] at 16 kHz, after `history`, oldest first.

        The turn belongs to the trace of `traceparent` (W3C), or begins one.
        """
        request = turn_request(
            audio,
            history,
            turn_id=turn_id,
            session_id=session_id,
            traceparent=traceparent,
            options=options,
        )
        return self._stream(request, self._watcher)

    def speak(
        self,
        text: str,
        *,
        turn_id: str | None = None,
        traceparent: str | None = None,
        options: TurnOptions | None = None,
    ) -> AsyncTurnStream:
        """Have `text` spoken; the chunks carry no text of their own."""
        request = speak_request(text, turn_id=turn_id, traceparent=traceparent, options=options)
        return self._stream(request)

    async def transcribe(
        self, audio: Floats, *, turn_id: str | None = None, min_frames: int | None = None
    ) -> Transcript:
        """What is said in `audio`, float32 [samples] at 16 kHz.

        `min_frames`: mel frames (100 a second) that each window is padded to at least; 3000 is what
        Whisper was trained on, and takes twice as long as what the server chooses for short sound.
        """
        request = transcribe_request(audio, turn_id=turn_id, min_frames=min_frames)
        try:
            return read_transcript(await self._stub.ModelInfer(request, timeout=self.timeout_s))
        except grpc.RpcError as fault:
            raise error_of(fault, request.id, self.timeout_s) from fault

    async def aclose(self) -> None:
        """Close the channel; open streams are cancelled."""
        self._watcher.close()
        await self._channel.close()

    def _stream(self, request: Any, watcher: AsyncWatcher | None = None) -> AsyncTurnStream:
        sent_ns = time.monotonic_ns()
        call = self._stub.ModelStreamInfer(iter([request]), timeout=self.timeout_s)
        return AsyncTurnStream(call, request, sent_ns, self.timeout_s, watcher)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *fault: object) -> None:
        await self.aclose()
