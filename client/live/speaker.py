"""Somebody on the line who says recordings, hears the answers out, and may interrupt them."""

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from client.live.events import Floats, LiveEvent

Pcm = npt.NDArray[np.int16]

PATIENCE_S = 30.0
"""Without a sound of an answer; beyond, the next recording is begun all the same."""


def to_pcm(sound: Floats) -> Pcm:
    """float32 [samples] as 16 bit PCM."""
    return (np.clip(sound, -1, 1) * 32_767).round().astype("<i2")


class Speaker:
    """One recording after the other, each when the answer to the one before has been played, and
    silence in between. Pure: it is told the time, s of time.monotonic()."""

    def __init__(
        self,
        sounds: Sequence[Floats],
        *,
        rate_hz: int = 16_000,
        chunk_s: float = 0.1,
        barge_in_s: float | None = None,
        pause_s: float = 0.0,
        again: bool = False,
    ) -> None:
        """`sounds`: float32 [samples] at `rate_hz`. `barge_in_s`: begin the next one so long after
        the first sound of an answer. `pause_s`: be silent so long behind an answer. `again`: begin
        with the first when all have been said."""
        self.chunk_s = chunk_s
        self._pause_s = pause_s
        self.barge_in_s = barge_in_s
        self.begins_s: list[float] = []
        """When each recording was begun."""

        self.ends_s: list[float] = []
        """When the last sample of each recording was spoken."""

        self._sounds = deque(to_pcm(sound) for sound in sounds if sound.size)
        self._size = round(chunk_s * rate_hz)
        self._again = again
        self._sound: Pcm = np.zeros(0, np.int16)
        """What is left to say of the recording under way."""

        self._next_s = -math.inf
        self._barge_in_at_s = math.inf
        self._answer = ""
        """The answer that is being heard."""

    @property
    def speaking(self) -> bool:
        """A recording is under way."""
        return bool(self._sound.size)

    def follow(self, event: LiveEvent, now_s: float) -> None:
        """What the server tells decides when the next recording is begun."""
        match event.type:
            case "audio":
                if event.turn != self._answer and self.barge_in_s is not None and self._sounds:
                    self._barge_in_at_s = now_s + self.barge_in_s
                self._answer = event.turn
                self._next_s = now_s + PATIENCE_S
            case "answered" | "failed" | "no_speech" if self._awaits(event.turn):
                self._answer = ""
                self.go_on(now_s + self._pause_s)
            case "interrupted":
                self._answer = ""

    def go_on(self, now_s: float) -> None:
        """Begin the next recording then at the latest, unless one is under way."""
        self._next_s = min(self._next_s, now_s)

    def chunk(self, due_s: float) -> Pcm | None:
        """The sound of the `chunk_s` before `due_s`; None when all has been said and answered."""
        if not self.speaking and due_s >= min(self._next_s, self._barge_in_at_s):
            if not self._sounds:
                return None
            self._sound = self._sounds.popleft()
            if self._again:
                self._sounds.append(self._sound)
            self.begins_s.append(due_s - self.chunk_s)
        chunk, self._sound = self._sound[: self._size], self._sound[self._size :]
        if chunk.size and not self.speaking:
            self.ends_s.append(due_s - self.chunk_s + chunk.size * self.chunk_s / self._size)
            self._next_s, self._barge_in_at_s = due_s + PATIENCE_S, math.inf
        padded: Pcm = np.concatenate([chunk, np.zeros(self._size - chunk.size, np.int16)])
        return padded

    def _awaits(self, turn: str) -> bool:
        """What is told of it is of the answer under way, or there is none; a noise during an answer
        is a turn of its own."""
        return bool(turn) and self._answer in ("", turn)
