"""One caller's sound, from bytes to turns of speech and their words. For the loop's thread.

What was said is transcribed as soon as there is a pause behind it, without knowing whether it is
the last one: its words say how long to wait for more, and when no more comes they are there.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from python_backends.encoder_window.audio import SAMPLE_RATE_HZ
from python_backends.errors import StageError, StageFailed
from python_backends.listening.manner import manner_of
from python_backends.listening.news import (
    News,
    NoSpeech,
    NotHeard,
    Partial,
    SpeechEnded,
    SpeechStarted,
    Transcript,
)
from python_backends.listening.pcm import PcmReader
from python_backends.listening.tape import Floats, Tape
from python_backends.scheduling.endpoint import (
    Began,
    Endpoint,
    EndpointSettings,
    EndReason,
    Finished,
    Settled,
    WentOn,
)

WINDOW = 512
"""Samples that the voice activity model looks at: 32 ms."""

PRE_ROLL_S = 0.3
"""Sound before the first speech that goes with it: the model is late by a consonant."""

Transcribe = Callable[[str, Floats], Coroutine[Any, Any, str]]
"""What was said in sound [samples], for the turn of this name."""


class Judge(Protocol):
    """Has windows [n, WINDOW] judged in order; the ear is told by `judged`."""

    def __call__(self, ear: "Ear", windows: Floats, /) -> None: ...


@dataclass(eq=False)
class _Draft:
    """What was said up to `ended_s`, being transcribed; `partial`: in the middle of speech."""

    ended_s: float
    partial: bool
    words: "asyncio.Task[str]"


class Ear:
    """`tell` is called in order; a turn's words may come when the next turn has begun."""

    def __init__(
        self,
        name: str,
        *,
        rate_hz: int,
        settings: EndpointSettings,
        judge: Judge,
        transcribe: Transcribe,
        tell: Callable[[News], None],
        partial_s: float = 0.0,
    ) -> None:
        """`partial_s`: tell what was said so far at every pause, and so often in between; 0: not
        at all."""
        self._name = name
        self._reader = PcmReader(rate_hz)
        self._tape = Tape()
        self._endpoint = Endpoint(settings)
        self._judge = judge
        self._transcribe = transcribe
        self._tell = tell
        self._partial_s = partial_s
        self._looked_at_s = 0.0
        self._sent = self._judged = 0
        """Windows."""

        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        """Who is to be told when so many windows have been judged."""

        self._turns = 0
        self._draft: _Draft | None = None
        self._tasks: set[asyncio.Task[str]] = set()

    @property
    def speaking(self) -> bool:
        """A turn is under way."""
        return self._endpoint.speaking

    @property
    def spoken_s(self) -> float:
        """How long it is so far."""
        return self._endpoint.spoken_s

    @property
    def ahead_s(self) -> float:
        """Sound that waits to be judged."""
        return (self._sent - self._judged) * WINDOW / SAMPLE_RATE_HZ

    async def until_quiet(self) -> None:
        """Return when what has been judged has been told."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hear(self, chunk: NDArray[np.uint8], done: Callable[[], None]) -> None:
        """The next bytes; `done` is called when all that they make complete has been judged."""
        self._take(self._reader.read(chunk), done)

    def end(self, done: Callable[[], None]) -> None:
        """No more comes: the turn under way, if there is one, ends here."""
        rest = self._reader.end()
        missing = -(self._tape.end + rest.size) % WINDOW
        padded = np.concatenate([rest, np.zeros(missing, np.float32)])

        def close() -> None:
            self.finish("closed")
            if not self._turns:
                self._tell(NoSpeech())
            done()

        self._take(padded, close)

    def finish(self, reason: EndReason) -> None:
        """End the turn under way, if there is one."""
        for one in self._endpoint.finish(reason):
            self._follow(one)

    def judged(self, probability: float) -> None:
        """The next window contains speech with this probability."""
        self._judged += 1
        for one in self._endpoint.hear(probability):
            self._follow(one)
        if self._endpoint.speaking:
            self._look()
        else:
            keep_s = PRE_ROLL_S + self._endpoint.settings.begin_within_s
            self._tape.forget(self._judged * WINDOW - _samples(keep_s))
        while self._waiting and self._waiting[0][0] <= self._judged:
            self._waiting.popleft()[1]()

    def drop(self) -> None:
        """The caller is gone: nothing is told any more."""
        self._tell = lambda news: None
        for task in self._tasks:
            task.cancel()

    def _take(self, sound: Floats, done: Callable[[], None]) -> None:
        self._tape.append(sound)
        whole = self._tape.end // WINDOW
        if whole > self._sent:
            windows = self._tape.cut(self._sent * WINDOW, whole * WINDOW).reshape(-1, WINDOW)
            self._sent = whole
            self._judge(self, windows)
        if self._sent > self._judged:
            self._waiting.append((self._sent, done))
        else:
            done()

    def _follow(self, one: Began | Settled | WentOn | Finished) -> None:
        match one:
            case Began(at_s):
                self._turns += 1
                self._began_s = self._looked_at_s = at_s
                self._tell(SpeechStarted(self.turn, _ms(at_s)))
            case Settled(at_s):
                self._drop_draft()
                self._begin(at_s)
            case WentOn():
                self._drop_draft()
            case Finished(_, ended_s, waited_s, reason):
                ended = SpeechEnded(self.turn, _ms(ended_s), _ms(waited_s), reason)
                self._tell(ended)
                self._conclude(ended_s)

    @property
    def turn(self) -> str:
        """The turn of speech under way, or the last one."""
        return f"{self._name}.{self._turns}"

    def _begin(self, ended_s: float, *, partial: bool = False) -> _Draft:
        """Transcribe the turn under way up to `ended_s`."""
        tail_s = self._endpoint.settings.settle_s
        begin, end = _samples(self._began_s - PRE_ROLL_S), _samples(ended_s + tail_s)
        words = asyncio.create_task(self._transcribe(self.turn, self._tape.cut(begin, end)))
        self._draft = draft = _Draft(ended_s, partial, words)
        self._tasks.add(words)
        words.add_done_callback(lambda _: self._drafted(draft))
        return draft

    def _drafted(self, draft: _Draft) -> None:
        """Its words are there; they count if nobody has spoken since."""
        self._tasks.discard(draft.words)
        failed = draft.words.cancelled() or draft.words.exception() is not None
        if self._draft is not draft or not self._endpoint.speaking:
            return
        if failed or draft.partial:
            self._draft = None
        if not failed:
            text = draft.words.result()
            self._endpoint.judge(manner_of(text))
            if self._partial_s and text:
                self._tell(Partial(self.turn, text))

    def _look(self) -> None:
        """Begin a partial, if it is time, and nothing is being transcribed."""
        now_s = self._endpoint.at_s
        is_time = self._partial_s and now_s - self._looked_at_s >= self._partial_s
        if is_time and self._draft is None and not self._tasks:
            self._looked_at_s = now_s
            self._begin(now_s, partial=True)

    def _conclude(self, ended_s: float) -> None:
        """The turn's words, from the draft if nothing was said after it."""
        draft = self._draft
        if draft is None or draft.ended_s != ended_s:
            self._drop_draft()
            draft = self._begin(ended_s)
        self._draft = None
        draft.words.add_done_callback(partial(self._concluded, self.turn))

    def _concluded(self, turn: str, words: "asyncio.Task[str]") -> None:
        if words.cancelled():
            return
        fault = words.exception()
        if fault is None:
            text = words.result()
            self._tell(Transcript(turn, text) if text else NoSpeech(turn))
        elif isinstance(fault, StageError):
            self._tell(NotHeard(turn, fault))
        else:
            self._tell(NotHeard(turn, StageFailed("what was said could not be transcribed")))

    def _drop_draft(self) -> None:
        draft, self._draft = self._draft, None
        if draft is not None:
            draft.words.cancel()

    def check_integrity(self) -> None:
        """Nobody waits for what has been judged, and no more sound is kept than a turn has."""
        self._tape.check_integrity()
        self._endpoint.check_integrity()
        assert self._judged <= self._sent
        assert all(count > self._judged for count, _ in self._waiting)


def _samples(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE_HZ)


def _ms(seconds: float) -> int:
    return round(1000 * seconds)
