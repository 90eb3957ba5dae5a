"""Whether a turn that is silent is still there.

When the process of `turn` dies, the server (2.51) neither answers nor ends the streams it had open.
So a client asks after a turn that has been silent for a while, by an order that any stage with a
queue takes; one that is not known any more has ended.
"""

import asyncio
import json
import threading
import time
from typing import Any, Final, Protocol
from weakref import WeakSet

import grpc
import numpy as np

from python_backends import wire
from python_backends.errors import StageError, StageFailed, from_text

SILENT_S: Final = 0.3
"""After so long without a word it is asked."""

SURE_S: Final = 0.1
"""And again, after an answer that it is gone: its last word may have been on the way."""

MISSES: Final = 2
TIMEOUT_S: Final = 1.0
TICK_S: Final = 0.05


class Pulse:
    """What is known of one turn. Pure: told the time."""

    def __init__(self, turn: str, now: float) -> None:
        self._turn = turn
        self._ask_at = now + SILENT_S
        self._misses = 0

    def heard(self, now: float) -> None:
        """Something came."""
        self._ask_at, self._misses = now + SILENT_S, 0

    def is_due(self, now: float) -> bool:
        """It should be asked."""
        return now >= self._ask_at

    def answered(self, error: StageError | None, now: float) -> StageFailed | None:
        """The server was asked, and knows the turn, or said why not; what to end the stream with.

        A server that cannot say, as while the model is loaded again, is asked again.
        """
        if error is None:
            self.heard(now)
            return None
        self._ask_at = now + SURE_S
        self._misses += error.reason == "ended"
        if self._misses < MISSES:
            return None
        return StageFailed(
            "the process that served the turn has ended",
            stage="turn",
            turn=self._turn,
            reason="ended",
        )


class Watched(Protocol):
    """A stream."""

    turn_id: str
    pulse: Pulse

    def break_off(self, error: StageFailed) -> None:
        """End it with this error."""


def open_request(turn: str, model: str) -> Any:
    """Asks whether a turn is there."""
    order = np.array([[json.dumps({"open": turn}).encode()]], dtype=np.object_)
    return wire.to_request(model, {"CONTROL": order}, turn="", parameters={})


async def watch(stream: Watched, stub: Any, model: str) -> None:
    """Until cancelled, or until the stream is broken off."""
    while True:
        await asyncio.sleep(TICK_S)
        if not stream.pulse.is_due(time.monotonic()):
            continue
        error: StageError | None = None
        try:
            request = open_request(stream.turn_id, model)
            async for message in stub.ModelStreamInfer(iter([request]), timeout=TIMEOUT_S):
                if message.error_message:
                    error = from_text(message.error_message)
        except grpc.RpcError as fault:
            error = StageFailed(str(fault.details()))
        verdict = stream.pulse.answered(error, time.monotonic())
        if verdict is not None:
            stream.break_off(verdict)
            return


class Watcher:
    """Does the same for streams of a sync client, on one thread that lives as long as they do."""

    def __init__(self, stub: Any, model: str) -> None:
        self._stub = stub
        self._model = model
        self._streams: WeakSet[Any] = WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, stream: Watched) -> None:
        """Watch a stream until it is discarded."""
        with self._lock:
            self._streams.add(stream)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
                self._thread.start()

    def discard(self, stream: Watched) -> None:
        """It has ended."""
        with self._lock:
            self._streams.discard(stream)

    def _run(self) -> None:
        while True:
            time.sleep(TICK_S)
            with self._lock:
                if not self._streams:
                    self._thread = None
                    return
                streams = list(self._streams)
            for stream in streams:
                if stream.pulse.is_due(time.monotonic()):
                    self._ask(stream)

    def _ask(self, stream: Watched) -> None:
        error: StageError | None = None
        try:
            request = open_request(stream.turn_id, self._model)
            for message in self._stub.ModelStreamInfer(iter([request]), timeout=TIMEOUT_S):
                if message.error_message:
                    error = from_text(message.error_message)
        except grpc.RpcError as fault:
            error = StageFailed(str(fault.details()))
        except ValueError:  # the channel has been closed
            return
        verdict = stream.pulse.answered(error, time.monotonic())
        if verdict is not None:
            stream.break_off(verdict)
