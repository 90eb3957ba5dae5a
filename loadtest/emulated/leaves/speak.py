"""Emulated speaking: steps on the device, and a chunk of sound after so many of them.

A chunk's SPEECH is one number, how many ms it would last, or as much silence.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.device import Emulation
from loadtest.device.emulation import even_parts
from loadtest.emulated.leaves.steps import Stepped, Steps
from python_backends.ar_loop.sequence import Sequence
from python_backends.ar_loop.settings import LoopSettings
from python_backends.bridge import ModelConfig, Request
from python_backends.bridge.tensors import text
from python_backends.errors import InvalidInput
from python_backends.pieces import LAST_CHUNK, LAST_PIECE
from python_backends.scheduling.order import InOrder
from python_backends.speech import SAMPLE_RATE_HZ

NOTHING = text("")
RATE = np.array([[SAMPLE_RATE_HZ]], np.int32)
Outputs = dict[str, NDArray[Any]]


class Speak(Steps):
    """The steps of a turn's speech are shared evenly by its pieces."""

    def __init__(self, emulation: Emulation) -> None:
        super().__init__(emulation, "speak")
        self.piece_steps = even_parts(self.profile.steps, len(emulation.piece_steps))
        self._order = InOrder(limit=4096)
        self._sound = emulation.sound

    def sequence(self, request: Request) -> Sequence:
        """See Steps."""
        return Utterance(request, self)

    def abandon(self, turn: str) -> None:
        """See Task: a request that has ended ignores what is sent."""
        for send in self._order.abandon(turn):
            send()

    def speech(self, ms: float) -> NDArray[np.float32]:
        """SPEECH of a chunk that lasts so long."""
        if self._sound:
            return np.zeros((1, round(ms * SAMPLE_RATE_HZ / 1000)), np.float32)
        return np.array([[ms]], np.float32)

    def in_order(self, turn: str, place: NDArray[np.int32], send: Callable[[], None]) -> None:
        """Send the chunk at `place` now, or after the earlier ones of its turn."""
        piece, chunk, flags = map(int, place[0])
        if piece == 0 and flags & LAST_PIECE:
            send()
            return
        ends_piece = bool(flags & LAST_CHUNK)
        ends_turn = ends_piece and bool(flags & LAST_PIECE)
        self._order.submit(
            turn, (piece, chunk), ends_piece=ends_piece, ends_turn=ends_turn, send=send
        )


class Utterance(Stepped):
    """One piece being spoken."""

    def __init__(self, request: Request, task: Speak) -> None:
        self._piece, _, self._flags = map(int, request.required("PIECE")[0])
        if not 0 <= self._piece < len(task.piece_steps):
            known = len(task.piece_steps)
            raise InvalidInput(f"piece {self._piece} of a turn that has {known} pieces")
        self._total = task.piece_steps[self._piece]
        super().__init__(request, self._total, task)
        self._speak = task
        self._chunks = 0
        self._chunk_steps = 0

    def stepped(self, steps: int) -> None:
        """See Stepped."""
        self._chunk_steps += 1
        last = steps == self._total
        if last or self._chunk_steps == self._speak.profile.steps_per_chunk:
            self._emit(last=last)

    def close(self, reason: str) -> None:
        """See Sequence: the last chunk has ended the request, or will when it may leave."""

    def _emit(self, *, last: bool) -> None:
        flags = self._flags | (LAST_CHUNK if last else 0)
        place = np.array([[self._piece, self._chunks, flags]], np.int32)
        sound_ms = self._chunk_steps * self._speak.profile.audio_ms_per_step
        outputs: Outputs = {
            "PIECE": place,
            **self._words(last=last),
            "SPEECH": self._speak.speech(sound_ms),
            "SAMPLE_RATE": RATE,
        }
        leave = self.request.finish if last else self.request.send
        if self.request.options.ordered:
            self._speak.in_order(self.request.turn, place, partial(leave, outputs))
        else:
            leave(outputs)
        self._chunks += 1
        self._chunk_steps = 0

    def _words(self, *, last: bool) -> Outputs:
        """TEXT and HEARD with the first chunk, STATUS and all EVENTS with the last."""
        first = self._chunks == 0
        given = {"TEXT": first, "HEARD": first, "STATUS": last}
        words = {name: self._given(name) if now else NOTHING for name, now in given.items()}
        return {**words, "EVENTS": self._events() if last else NOTHING}

    def _given(self, name: str) -> NDArray[Any]:
        found = self.request.optional(name)
        return NOTHING if found is None else found

    def _events(self) -> NDArray[np.object_]:
        computed = self.computed(self._piece, 0, self._total)
        return self.request.with_events(self.queued(self._piece), computed)


def load(config: ModelConfig, settings: LoopSettings) -> Speak:
    """Task of emu_speak."""
    return Speak(Emulation.load())
