"""Clients of the models `turn`, `transcribe` and `speak`, sync and async.

    with TurnClient("127.0.0.1:8001") as client:         # credentials=...: over TLS
        for chunk in client.turn(audio, history):
            play(chunk.speech, chunk.sample_rate_hz)

Breaking out of the loop, closing the stream or cancelling it from another thread stops the turn on
the server. Every call has a time-out. Whatever goes wrong is a StageError: DeadlineMissed after the
time-out, Cancelled after `cancel`, what the server said where it said anything.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Self

import grpc
from tritonclient.grpc import service_pb2_grpc

from client.aio import AsyncTurnClient, AsyncTurnStream
from client.calls import CLOSE_S, TIMEOUT_S, dial, error_of
from client.conversation import AsyncConversation, Conversation
from client.pulse import Pulse, Watcher
from client.requests import (
    Floats,
    TurnOptions,
    speak_request,
    traceparent_of,
    transcribe_request,
    turn_request,
)
from client.responses import Event, Transcript, TurnChunk, TurnReader, read_transcript
from python_backends.access import credentials
from python_backends.errors import StageFailed
from python_backends.ordering.prompt import Utterance

__all__ = [
    "AsyncConversation",
    "AsyncTurnClient",
    "AsyncTurnStream",
    "Conversation",
    "Event",
    "Transcript",
    "TurnChunk",
    "TurnClient",
    "TurnOptions",
    "TurnStream",
    "Utterance",
    "credentials",
]


class TurnStream(Iterator[TurnChunk]):
    """The chunks of one turn, in order; raises a StageError unless it ends as a turn should."""

    def __init__(
        self,
        call: Any,
        request: Any,
        sent_ns: int,
        timeout_s: float,
        watcher: Watcher | None = None,
    ) -> None:
        self.turn_id = str(request.id)
        self.traceparent = traceparent_of(request)
        self.sent_ns = sent_ns
        self._call = call
        self._timeout_s = timeout_s
        self._reader = TurnReader(self.turn_id)
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

    def __next__(self) -> TurnChunk:
        try:
            return self._read()
        except grpc.RpcError as fault:
            if self._broken is not None:
                raise self._broken from fault
            raise error_of(fault, self.turn_id, self._timeout_s) from fault
        finally:
            if self._done:
                self._end()

    def _end(self) -> None:
        self._call.cancel()
        if self._watcher is not None:
            self._watcher.discard(self)

    def _read(self) -> TurnChunk:
        if self._done:
            raise StopIteration
        self._done = True
        self.pulse.heard(time.monotonic())
        for message in self._call:
            self.pulse.heard(time.monotonic())
            if message.error_message:
                self._read_to_end()
            chunk = self._reader.take(message, time.monotonic_ns())
            if chunk is not None:
                self._done = False
                self.pulse.rest()
                return chunk
        self._reader.close()
        raise StopIteration

    def _read_to_end(self) -> None:
        """Let the server close the stream, as it does right behind an error: of a stream that is
        cut off in between it keeps the models loaded for ever."""
        cut_off = threading.Timer(CLOSE_S, self._call.cancel)
        cut_off.start()
        with suppress(grpc.RpcError):
            for _ in self._call:
                pass
        cut_off.cancel()

    def cancel(self) -> None:
        """Stop the turn here and on the server; a thread that waits for a chunk gets Cancelled."""
        self._call.cancel()

    def close(self) -> None:
        """Stop the turn unless it has ended."""
        self._done = True
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._call.cancel()


class TurnClient:
    """Speaks with one server; may be shared by threads."""

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = TIMEOUT_S,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        """`credentials`: of `credentials(root, certificate, key)`; None: plaintext."""
        self.timeout_s = timeout_s
        self._channel = dial(address, credentials)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._watcher = Watcher(self._stub, "turn")

    def turn(
        self,
        audio: Floats,
        history: Sequence[Utterance] = (),
        *,
        turn_id: str | None = None,
        session_id: str | None = None,
        traceparent: str | None = None,
        options: TurnOptions | None = None,
    ) -> TurnStream:
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
    ) -> TurnStream:
        """Have `text` spoken; the chunks carry no text of their own."""
        request = speak_request(text, turn_id=turn_id, traceparent=traceparent, options=options)
        return self._stream(request)

    def transcribe(
        self, audio: Floats, *, turn_id: str | None = None, min_frames: int | None = None
    ) -> Transcript:
        """What is said in `audio`, float32 [samples] at 16 kHz.

        `min_frames`: mel frames (100 a second) that each window is padded to at least; 3000 is what
        Whisper was trained on, and takes twice as long as what the server chooses for short sound.
        """
        request = transcribe_request(audio, turn_id=turn_id, min_frames=min_frames)
        try:
            return read_transcript(self._stub.ModelInfer(request, timeout=self.timeout_s))
        except grpc.RpcError as fault:
            raise error_of(fault, request.id, self.timeout_s) from fault

    def close(self) -> None:
        """Close the channel; open streams are cancelled."""
        self._channel.close()

    def _stream(self, request: Any, watcher: Watcher | None = None) -> TurnStream:
        sent_ns = time.monotonic_ns()
        call = self._stub.ModelStreamInfer(iter([request]), timeout=self.timeout_s)
        return TurnStream(call, request, sent_ns, self.timeout_s, watcher)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()
