"""What a caller's loudspeaker plays. Pure: whoever plays takes the next samples, at their own time.

An answer is held while its caller speaks, goes on where it stopped, or is dropped; what has been
played of it is what the server is told.
"""

from collections import deque
from threading import Lock
from typing import Any

import numpy as np
import soxr

from client.live.events import Floats, LiveEvent
from python_backends.speech import SAMPLE_RATE_HZ


class Playback:
    """Of one call, at `rate_hz`; for a thread that reads beside one that follows the call."""

    def __init__(self, rate_hz: int = SAMPLE_RATE_HZ) -> None:
        self.rate_hz = rate_hz
        self.underruns = 0
        """Times that an answer ran dry before its last chunk."""

        self.turn = ""
        """The answer that is being played, or was last."""

        self._lock = Lock()
        self._to_rate = _ToRate(rate_hz)
        self._waiting: deque[Floats] = deque()
        self._played = 0
        self._held = self._complete = False
        self._dry = True
        """Less came than was asked for last; nobody was kept waiting by an answer yet."""

        self._told: tuple[str, int] = ("", 0)

    def take(self, event: LiveEvent) -> None:
        """Follow an event of the call."""
        if event.type == "audio":
            self._add(event)
        elif event.turn == self.turn:
            with self._lock:
                self._follow(event.type)

    def read(self, samples: int) -> Floats:
        """The next samples to be heard; silence where there is nothing to play."""
        heard = np.zeros(samples, np.float32)
        with self._lock:
            at = 0
            while self._waiting and not self._held and at < samples:
                block = self._waiting.popleft()
                taken = min(block.size, samples - at)
                heard[at : at + taken] = block[:taken]
                at += taken
                if taken < block.size:
                    self._waiting.appendleft(block[taken:])
            self._played += at
            if not self._held:
                self.underruns += at < samples and not (self._dry or self._complete)
                self._dry = at < samples
        return heard

    @property
    def is_playing(self) -> bool:
        """Something waits to be heard."""
        return bool(self._waiting)

    @property
    def left_s(self) -> float:
        """How much of it."""
        with self._lock:
            return sum(block.size for block in self._waiting) / self.rate_hz

    @property
    def played_ms(self) -> int:
        """Of the answer that is being played."""
        return round(1000 * self._played / self.rate_hz)

    def report(self) -> dict[str, Any] | None:
        """What the server is to be told, if there is news."""
        with self._lock:
            news = (self.turn, self._played)
            if news == self._told or not self.turn:
                return None
            self._told = news
            return {"turn": self.turn, "played_ms": self.played_ms}

    def _follow(self, what: str) -> None:
        """Of the answer that is being played."""
        match what:
            case "paused":
                self._held = True
            case "resumed":
                self._held = False
            case "answered":
                self._complete = True
            case "interrupted" | "failed":
                self._waiting.clear()
                self._held, self._complete = False, True

    def _add(self, event: LiveEvent) -> None:
        is_last = bool(event.more.get("last"))
        if event.turn != self.turn:
            self._to_rate = _ToRate(self.rate_hz)
        sound = self._to_rate(event.speech, event.sample_rate_hz, last=is_last)
        with self._lock:
            if event.turn != self.turn:
                self._waiting.clear()
                self.turn, self._played, self._held = event.turn, 0, False
            self._complete = is_last
            if sound.size:
                self._waiting.append(sound)
                self._dry = False


class _ToRate:
    """The chunks of one answer at another rate, without a seam between two of them."""

    def __init__(self, to_hz: int) -> None:
        self._to_hz = to_hz
        self._stream: Any = None

    def __call__(self, sound: Floats, rate_hz: int, *, last: bool) -> Floats:
        if self._stream is None:
            if not sound.size or rate_hz == self._to_hz:
                return sound
            self._stream = soxr.ResampleStream(rate_hz, self._to_hz, 1, dtype="float32")
        return np.asarray(self._stream.resample_chunk(sound, last=last), np.float32)
