"""Whether turns that are silent are still there.

When the process of `turn` dies, the server (2.51) neither answers nor ends the streams it had open.
So a client asks after the turns that have been silent for a while, all in one order that any stage
with a queue takes; one that is not known any more has ended.
"""

import asyncio
import json
import math
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
TIMEOUT_S: Final = 0.3
"""Of a question: a process that has just died answers none."""

TICK_S: Final = 0.05
SOON_S: Final = 0.1
"""A question takes along the turns that would be due so soon."""

UPLINK_BYTES_PER_S: Final = 50_000
"""Of a line that a spoken turn can be sent over in about its own time."""

MOST: Final = 32
"""Turns in one question: the longest ids of so many are accepted as one order."""

NOTHING: Final = np.array([], np.object_)


class Pulse:
    """What is known of one turn, while somebody waits for its next word. Pure: told the time.

    `upload_bytes`: of the request; as long as a slow line may need for them, a server that does not
    know the turn has not heard of it yet.
    """

    def __init__(self, turn: str, now: float, upload_bytes: int = 0) -> None:
        self.turn = turn
        self.ask_at = now + SILENT_S
        self._sent_by = now + upload_bytes / UPLINK_BYTES_PER_S
        self._misses = 0

    def heard(self, now: float) -> None:
        """Something came, or somebody waits again."""
        self.ask_at, self._misses = now + SILENT_S, 0

    def rest(self) -> None:
        """Nobody waits: the caller is busy with what came, and more may lie there unread."""
        self.ask_at = math.inf

    def is_due(self, now: float) -> bool:
        """It should be asked after."""
        return now >= self.ask_at

    def is_almost_due(self, now: float) -> bool:
        """It may be taken along; but the second question is a pause away from the first."""
        return self.is_due(now) or (not self._misses and self.is_due(now + SOON_S))

    def known(self, now: float) -> None:
        """The server has it."""
        if self._awaited:
            self._sent_by = now
            self.heard(now)

    def unclear(self, now: float) -> None:
        """The server could not say, as while the model is loaded again."""
        if self._awaited:
            self.ask_at = now + SURE_S

    def unknown(self, now: float) -> StageFailed | None:
        """The server does not have it; what to end the stream with, once that is sure."""
        if self._awaited:
            self.ask_at = now + SURE_S
            self._misses += now >= self._sent_by
        if self._misses < MISSES:
            return None
        return StageFailed(
            "the process that served the turn has ended",
            stage="turn",
            turn=self.turn,
            reason="ended",
        )

    @property
    def _awaited(self) -> bool:
        return self.ask_at < math.inf


class Watched(Protocol):
    """A stream."""

    pulse: Pulse

    def break_off(self, error: StageFailed) -> None:
        """End it with this error."""


@dataclass(frozen=True)
class Question:
    """What is asked of `model` about some turns."""

    turns: Sequence[str]
    model: str

    @property
    def request(self) -> Any:
        """A ModelInferRequest."""
        order = np.array([[json.dumps({"open": list(self.turns)}).encode()]], dtype=np.object_)
        return wire.to_request(self.model, {"CONTROL": order}, turn="", parameters={})

    @staticmethod
    def gone(answer: Iterable[Any]) -> set[str]:
        """Those that the server does not have, of the messages of its answer; raises the StageError
        of one that is an error."""
        found: set[str] = set()
        for message in answer:
            if message.error_message:
                raise from_text(message.error_message)
            lines = wire.to_arrays(message.infer_response).get("EVENTS", NOTHING)
            found.update(*(json.loads(line)["gone"] for line in lines.reshape(-1)))
        return found


class Pulses:
    """The streams of one client. For any thread; told the time."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._streams: WeakSet[Any] = WeakSet()
        self._lock = threading.Lock()

    def add(self, stream: Watched) -> None:
        """Watch a stream until it is discarded."""
        with self._lock:
            self._streams.add(stream)

    def discard(self, stream: Watched) -> None:
        """It has ended."""
        with self._lock:
            self._streams.discard(stream)

    def __len__(self) -> int:
        with self._lock:
            return len(self._streams)

    def question(self, now: float) -> Question | None:
        """What to ask now, if anything."""
        with self._lock:
            pulses = [stream.pulse for stream in self._streams]
        if not any(pulse.is_due(now) for pulse in pulses):
            return None
        due = [pulse for pulse in pulses if pulse.is_almost_due(now)]
        due.sort(key=lambda pulse: pulse.ask_at)
        return Question([pulse.turn for pulse in due[:MOST]], self._model)

    def answered(self, asked: Collection[str], gone: Collection[str] | None, now: float) -> None:
        """The server has all of `asked` but `gone`, or, with None, cannot say; streams that have
        ended are broken off."""
        with self._lock:
            streams = [stream for stream in self._streams if stream.pulse.turn in asked]
        for stream in streams:
            if gone is None:
                stream.pulse.unclear(now)
            elif stream.pulse.turn not in gone:
                stream.pulse.known(now)
            elif (verdict := stream.pulse.unknown(now)) is not None:
                self.discard(stream)
                stream.break_off(verdict)


class AsyncWatcher:
    """Asks for a client of asyncio, in a task that lives as long as there are streams."""

    def __init__(self, stub: Any, model: str) -> None:
        self._stub = stub
        self._pulses = Pulses(model)
        self._task: asyncio.Task[None] | None = None

    def add(self, stream: Watched) -> None:
        """See Pulses."""
        self._pulses.add(stream)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def discard(self, stream: Watched) -> None:
        """See Pulses."""
        self._pulses.discard(stream)

    def close(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._pulses:
            await asyncio.sleep(TICK_S)
            question = self._pulses.question(time.monotonic())
            if question is None:
                continue
            gone: set[str] | None = None
            with suppress(grpc.RpcError, StageError):
                call = self._stub.ModelStreamInfer(iter([question.request]), timeout=TIMEOUT_S)
                gone = question.gone([message async for message in call])
            self._pulses.answered(question.turns, gone, time.monotonic())


class Watcher:
    """The same on a thread."""

    def __init__(self, stub: Any, model: str) -> None:
        self._stub = stub
        self._pulses = Pulses(model)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, stream: Watched) -> None:
        """See Pulses."""
        with self._lock:
            self._pulses.add(stream)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
                self._thread.start()

    def discard(self, stream: Watched) -> None:
        """See Pulses."""
        self._pulses.discard(stream)

    def _run(self) -> None:
        while True:
            time.sleep(TICK_S)
            with self._lock:
                if not self._pulses:
                    self._thread = None
                    return
            question = self._pulses.question(time.monotonic())
            if question is None:
                continue
            gone: set[str] | None = None
            with suppress(grpc.RpcError, StageError, ValueError):  # of a channel that was closed
                call = self._stub.ModelStreamInfer(iter([question.request]), timeout=TIMEOUT_S)
                gone = question.gone(list(call))
            self._pulses.answered(question.turns, gone, time.monotonic())
