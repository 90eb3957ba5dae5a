"""`prosody`: a piece of text to phonemes, each with a duration and a pitch."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from python_backends.ar_loop.sequence import Sequence
from python_backends.ar_loop.settings import LoopSettings
from python_backends.bridge import Request, log_fault
from python_backends.bridge.events import now_ns
from python_backends.bridge.options import MAX_SEED
from python_backends.bridge.tensors import text
from python_backends.errors import InvalidInput, StageFailed
from python_backends.pieces import LAST_PIECE, NO_SOUND
from python_backends.scheduling.arrived import ArrivedInOrder
from python_backends.slot_engine.command import Sampling, Tokens
from python_backends.speech import FRAMES_PER_TICK, SILENCE, VOICES
from python_backends.spoken import Phonemizer

CHARACTERS_A_PHONEME = 8
"""Longer text is refused before it is looked at: reading a megabyte aloud takes seconds."""


class Intone:
    """Reads pieces aloud, on paper: one sequence a piece, one step a phoneme."""

    width = 2

    def __init__(self, phonemes: Callable[[str], list[int]], settings: LoopSettings) -> None:
        self._phonemes = phonemes
        self._order = ArrivedInOrder()
        self._limit = min(settings.capacity, settings.max_new_tokens)

    @classmethod
    def load(cls, settings: LoopSettings) -> "Intone":
        """With the words and phonemes of `spoken`."""
        return cls(Phonemizer(), settings)

    def open(self, request: Request) -> list[Sequence]:
        """See Task. Text with nothing to pronounce is answered at once."""
        ids = self._read(request.text("TEXT"))
        if len(ids) + 2 > self._limit:
            raise InvalidInput(
                f"the text has {len(ids)} phonemes; at most {self._limit - 2} are accepted at once"
            )
        self._expect(request)
        if not ids:
            self.answer(request, np.zeros((1, 3), np.int32), silent=True, started_ns=now_ns())
            return []
        return [Melody(request, np.array([SILENCE, *ids, SILENCE], np.int64), self)]

    def _read(self, line: str) -> list[int]:
        most = CHARACTERS_A_PHONEME * self._limit
        if len(line) > most:
            raise InvalidInput(f"the text has {len(line)} characters; at most {most} are accepted")
        try:
            return self._phonemes(line)
        except ValueError as fault:
            raise InvalidInput(str(fault)) from fault
        except Exception as fault:  # any text may come here, and others are being served
            log_fault("a text could not be read", fault)
            raise StageFailed("the text could not be read") from fault

    def _expect(self, request: Request) -> None:
        if _is_alone(request):
            return
        try:
            self._order.arrive(request.turn, int(_piece(request)[0, 0]))
        except ValueError as fault:
            raise InvalidInput(str(fault)) from fault

    def abandon(self, turn: str) -> None:
        """See Task."""
        for send in self._order.abandon(turn):
            send()

    def after_step(self, members: int) -> None:
        """See Task."""

    def answer(
        self, request: Request, prosody: NDArray[np.int32], *, silent: bool, started_ns: int
    ) -> None:
        """Finish a piece with PROSODY [1, P, 3], after the pieces before it."""
        piece = _piece(request)
        if silent:
            piece[0, 2] |= NO_SOUND
        spans = (
            request.span("queue", request.arrived_ns, started_ns, piece=int(piece[0, 0])),
            request.span("compute", started_ns, now_ns(), piece=int(piece[0, 0])),
        )
        outputs = {
            "PIECE": piece,
            "TEXT": text(request.text("TEXT")),
            "HEARD": text(request.text("HEARD", "")),
            "STATUS": text(request.text("STATUS", "")),
            "EVENTS": request.with_events(*spans),
            "PROSODY": prosody[None],
        }
        if _is_alone(request):
            request.finish(outputs)
        else:
            number = int(piece[0, 0])
            self._order.ready(request.turn, number, lambda: request.finish(outputs))


class Melody(Sequence):
    """One piece being intoned: every step draws a duration and a pitch for the next phoneme."""

    def __init__(self, request: Request, phonemes: NDArray[np.int64], task: Intone) -> None:
        options = request.options
        piece = int(_piece(request)[0, 0])
        super().__init__(
            request,
            prompt=np.zeros((1, 2), np.int64),
            max_new=len(phonemes),
            sampling=Sampling(options.speech_temperature, (options.seed + piece) & MAX_SEED),
            context={"PHONEMES": phonemes, "VOICE": np.array([VOICES.index(options.voice)])},
        )
        self._phonemes = phonemes
        self._task = task
        self._drawn: list[Tokens] = []
        self._started_ns = 0

    def advance(self, token: Tokens) -> bool:
        """See Sequence. The model is fed tokens plus one: 0 means "none before"."""
        self._drawn.append(token)
        self.last = token + 1
        return False

    def deliver(self, token: Tokens, score: float, no_speech: float) -> None:
        """See Sequence."""
        self._started_ns = self._started_ns or now_ns()

    def close(self, reason: str) -> None:
        """See Sequence."""
        drawn = np.stack(self._drawn)
        frames = np.maximum(drawn[:, 0], 1) * FRAMES_PER_TICK
        prosody = np.stack([self._phonemes, frames, drawn[:, 1]], axis=1).astype(np.int32)
        self._task.answer(self.request, prosody, silent=False, started_ns=self._started_ns)


def _piece(request: Request) -> NDArray[np.int32]:
    """PIECE [1, 3]; text that comes without it is the only piece of its turn."""
    given = request.optional("PIECE")
    return np.array([[0, 0, LAST_PIECE]], np.int32) if given is None else given.copy()


def _is_alone(request: Request) -> bool:
    """It waits for no other: it is the whole turn, or somebody else keeps the order."""
    number, _, flags = _piece(request)[0]
    return not request.options.ordered or bool(number == 0 and flags & LAST_PIECE)
