"""Emulated thinking: steps on the device, and a piece of an answer after so many of them."""

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from loadtest.device import Emulation
from loadtest.emulated.leaves.steps import Stepped, Steps
from loadtest.emulated.leaves.words import BROKEN, WORDS, WORDS_FILE
from python_backends.ar_loop.sequence import Sequence
from python_backends.ar_loop.settings import LoopSettings
from python_backends.bridge import ModelConfig, Request
from python_backends.bridge.tensors import text
from python_backends.pieces import LAST_PIECE
from python_backends.speech import SILENCE

NOTHING = text("")
SPOKEN_FRAMES = 8
SHORT_PAUSE, LONG_PAUSE = 6, 100
"""Frames of silence before a piece: they decide the shape bucket, of 80 frames or of 160, and are
not vocoded, so that what travels stays small."""


class Think(Steps):
    """`prosody`: each piece is sent with what the diffusion stage speaks from; `words`: what each
    piece says before its number."""

    def __init__(self, emulation: Emulation, *, prosody: bool = False, words: str = WORDS) -> None:
        super().__init__(emulation, "think")
        self.prosody = prosody
        self.words = words
        self.ends = tuple(accumulate(emulation.piece_steps))

    def sequence(self, request: Request) -> Sequence:
        """See Steps."""
        return Thought(request, self)


class Thought(Stepped):
    """One answer."""

    def __init__(self, request: Request, task: Think) -> None:
        super().__init__(request, task.ends[-1], task)
        self._ends = task.ends
        self._prosody = task.prosody
        self._words = task.words
        self._heard = text(request.text("HEARD"))
        self._pieces = 0
        self._spans: list[bytes] = []
        self._piece_since_ns = 0

    def stepped(self, steps: int) -> None:
        """See Stepped."""
        if steps == self._ends[self._pieces]:
            self._emit(steps)

    def close(self, reason: str) -> None:
        """See Sequence."""
        self.request.finish()

    def _emit(self, steps: int) -> None:
        piece, self._pieces = self._pieces, self._pieces + 1
        last = self._pieces == len(self._ends)
        self._note(piece, steps)
        outputs = {
            "PIECE": np.array([[piece, 0, LAST_PIECE if last else 0]], np.int32),
            "TEXT": text(f"{self._words} {piece}"),
            "HEARD": self._heard if piece == 0 else NOTHING,
            "STATUS": text("stop" if last else ""),
            "EVENTS": self.request.with_events(*self._spans),
        }
        if self._prosody:
            outputs["PROSODY"] = prosody(piece)
        self.request.send(outputs)

    def _note(self, piece: int, steps: int) -> None:
        """Spans of this piece, behind those of the pieces before it."""
        if piece == 0:
            self._spans.append(self.queued(piece))
        before = self._ends[piece - 1] if piece else 0
        self._spans.append(self.computed(piece, self._piece_since_ns, steps - before))
        self._piece_since_ns = self._until_ns


def prosody(piece: int) -> NDArray[np.int32]:
    """PROSODY [1, 2, 3] (phoneme, frames, pitch): the first piece is short, the others are long."""
    pause = LONG_PAUSE if piece else SHORT_PAUSE
    return np.array([[[SILENCE, pause, 0], [1, SPOKEN_FRAMES, 1]]], np.int32)


def load(config: ModelConfig, settings: LoopSettings) -> Think:
    """Task of emu_think."""
    return Think(Emulation.load(), words=_words(config))


def load_pieces(config: ModelConfig, settings: LoopSettings) -> Think:
    """Task of emu_think_pieces."""
    return Think(Emulation.load(), prosody=True, words=_words(config))


def _words(config: ModelConfig) -> str:
    """Of its version, where that has words of its own; a version with bad ones cannot be loaded."""
    file = config.artefact(WORDS_FILE)
    words = file.read_text().strip() if file.exists() else WORDS
    if words == BROKEN:
        raise ValueError(f"{file}: a version that is broken on purpose")
    return words
