"""One answer on its way to its caller's ears."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.errors import StageError
from python_backends.listening.news import unique
from python_backends.live_call.said import Said
from python_backends.peer import Outputs, Peer
from python_backends.pieces import LAST_CHUNK, LAST_PIECE, NO_SOUND
from python_backends.scheduling.pacing import Pace

SOUND = ("SPEECH", "SAMPLE_RATE", "EVENTS")
"""Tensors that are passed on with what is told of a chunk."""

Tell = Callable[[str, Mapping[str, NDArray[Any]]], None]


class Answer:
    """Of the turn `turn`, to what was `heard`. Chunks are kept as they come, and told at the pace
    at which they are played."""

    def __init__(self, turn: str, heard: str, pace: Pace, clock: Callable[[], float]) -> None:
        self.turn = turn
        self.name = unique(turn)
        """Behind the call: another caller may use the same ids."""

        self.heard = heard
        self.pace = pace
        self.over = asyncio.Event()
        """It has been played, interrupted, or has failed."""

        self._said = Said()
        self._clock = clock
        self._chunks: asyncio.Queue[Outputs | None] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._all_came = False

    @property
    def played_s(self) -> float:
        """How much of its sound has been played."""
        return self.pace.played_s(self._clock())

    @property
    def said(self) -> str:
        """What of it has been heard."""
        return self._said.up_to(self.played_s)

    def is_nearly_over(self, within_s: float) -> bool:
        """All of it has been sent, and is played but for this."""
        sent = self._all_came and self._chunks.empty()
        return sent and self.pace.left_s(self._clock()) <= within_s

    def pause(self) -> None:
        """Send no more, until it is resumed."""
        self.pace.pause(self._clock())
        self._changed.set()

    def resume(self) -> None:
        """Go on where it was paused."""
        self.pace.resume(self._clock())
        self._changed.set()

    def reported(self, played_s: float) -> None:
        """The caller has played so much."""
        self.pace.reported(played_s, self._clock())
        self._changed.set()

    async def serve(
        self,
        peer: Peer,
        model: str,
        inputs: Outputs,
        *,
        parameters: Mapping[str, Any],
        silence_s: float,
        tell: Tell,
    ) -> None:
        """Have the turn answered, tell every chunk in time, and return when it has been played.

        Raises what the turn failed of.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._fetch(peer, model, inputs, parameters, silence_s))
                while (chunk := await self._chunks.get()) is not None:
                    await self._until(lambda now: self.pace.wait_s(now))
                    self._tell(chunk, tell)
                await self._until(lambda now: self.pace.left_s(now))
        except* StageError as failed:
            raise failed.exceptions[0] from None

    async def _fetch(
        self,
        peer: Peer,
        model: str,
        inputs: Outputs,
        parameters: Mapping[str, Any],
        silence_s: float,
    ) -> None:
        stream = peer.stream(
            model, inputs, turn=self.name, parameters=parameters, silence_s=silence_s
        )
        async with aclosing(stream):
            async for answer in stream:
                self._chunks.put_nowait(answer.outputs)
        self._all_came = True
        self._chunks.put_nowait(None)

    async def _until(self, left_s: Callable[[float], float]) -> None:
        """Return when nothing is left; what is left may change at any time."""
        while (wait_s := left_s(self._clock())) > 0 or self.pace.paused:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if self.pace.paused else wait_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _tell(self, chunk: Outputs, tell: Tell) -> None:
        piece, number, flags = (int(one) for one in chunk["PIECE"].reshape(-1))
        silent = bool(flags & NO_SOUND)
        sound = np.zeros((1, 0), np.float32) if silent else chunk["SPEECH"]
        seconds = sound.size / int(chunk["SAMPLE_RATE"].reshape(-1)[0]) if sound.size else 0.0
        words = bytes(chunk["TEXT"].reshape(-1)[0]).decode(errors="replace")
        text = "" if number else words  # every chunk of a piece has the text of the whole
        self._said.add(piece, text, seconds, whole=bool(flags & LAST_CHUNK))
        event = {
            "type": "audio",
            "turn": self.turn,
            "piece": piece,
            "chunk": number,
            "text": text,
            "at_ms": round(1000 * self.pace.sent_s),
            "ms": round(1000 * seconds),
            "last": bool(flags & LAST_CHUNK and flags & LAST_PIECE),
        }
        tensors = {name: chunk[name] for name in SOUND if name in chunk}
        if silent:
            tensors.pop("SPEECH", None)
        tell(json.dumps(event, ensure_ascii=False), tensors)
        self.pace.sent(seconds, self._clock())
