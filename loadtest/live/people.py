"""People on the line: each speaks some recordings, hears the answers, and may interrupt them.

All of them are asyncio tasks of one process. What it is late by is kept, so that a slow generator
is not taken for a slow server.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np

from client.live import LiveCall, LiveClient, LiveEvent, converse
from client.live.speaker import Pcm, Speaker
from loadtest.live.loudspeaker import NS_PER_S, Loudspeaker
from loadtest.live.record import Record, Said
from loadtest.live.sounds import RATE_HZ, Floats
from python_backends.errors import StageError

CHUNK_S = 0.1
CHUNK = round(CHUNK_S * RATE_HZ)
SILENCE: Pcm = np.zeros(CHUNK, np.int16)


@dataclass(frozen=True)
class Stop:
    """An answer is to be stopped so long after its words were known, or after its first sound."""

    after: Literal["transcript", "audio"]
    delay_s: float


@dataclass(frozen=True)
class Script:
    """What one person does; each recording is begun when the answer before it has been heard."""

    sounds: Sequence[Floats]
    dial_s: float = 0.0
    """When the call begins. Chunks come at whole chunks' lengths after it, however late the
    generator is then: callers whom it kept waiting would be in step for ever."""

    listen_s: float = 0.0
    """Silence before the first recording."""

    barge_in_s: float | None = None
    """Begin the next recording so long after the first sound of an answer."""

    stops: Sequence[Stop | None] = ()
    """Of the first answer, the second, ...; None: it is not stopped."""


class Crowd:
    """Who has finished stays on the line in silence until everybody has."""

    def __init__(self, people: int, advance: Callable[[], None]) -> None:
        self.began_s = time.monotonic()
        self.advance = advance
        self._left = set(range(people))

    @property
    def over(self) -> bool:
        """Everybody has finished."""
        return not self._left

    def leave(self, person: int) -> None:
        """Has finished; may be told twice."""
        self._left.discard(person)


class Mouth(AsyncIterator[Pcm]):
    """A script in real time, silence before and behind it, and how late each chunk was."""

    def __init__(
        self,
        script: Script,
        began_s: float,
        over: Callable[[], bool],
        leave: Callable[[], None],
    ) -> None:
        self.began_s = began_s
        """When its first sample is spoken."""

        self._speaker = Speaker(script.sounds, chunk_s=CHUNK_S, barge_in_s=script.barge_in_s)
        self._listen_s = script.listen_s
        self._over, self._leave = over, leave
        self._chunks = 0
        self._finished = False
        self.late_ms: list[float] = []

    @property
    def said(self) -> list[Said]:
        """Recordings that have been spoken."""
        spoken = zip(self._speaker.begins_s, self._speaker.ends_s, strict=False)
        return [Said(_ns(begin), _ns(end)) for begin, end in spoken]

    def follow(self, event: LiveEvent) -> None:
        """See Speaker."""
        self._speaker.follow(event, time.monotonic())

    def go_on(self) -> None:
        """See Speaker."""
        self._speaker.go_on(time.monotonic())

    async def __anext__(self) -> Pcm:
        self._chunks += 1
        due_s = self.began_s + self._chunks * CHUNK_S
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        chunk = self._chunk(due_s)
        if chunk is None:
            raise StopAsyncIteration
        self.late_ms.append(max(0.0, 1000 * (time.monotonic() - due_s)))
        return chunk

    def _chunk(self, due_s: float) -> Pcm | None:
        """None when everybody has finished."""
        if due_s - self.began_s <= self._listen_s:
            return SILENCE
        if not self._finished:
            chunk = self._speaker.chunk(due_s)
            if chunk is not None:
                return chunk
            self._finished = True
            self._leave()
        return None if self._over() else SILENCE


class Person:
    """One call."""

    def __init__(self, number: int, script: Script, crowd: Crowd) -> None:
        self._number, self._script, self._crowd = number, script, crowd
        self._stops = iter(script.stops)
        self._stop: Stop | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self.record = Record(planned=len(script.sounds))

    async def speak(self, client: LiveClient) -> None:
        """The whole call; what it fails of is kept in its record."""
        began_s = self._crowd.began_s + self._script.dial_s
        await asyncio.sleep(began_s - time.monotonic())
        mouth = Mouth(
            self._script,
            began_s,
            lambda: self._crowd.over,
            lambda: self._crowd.leave(self._number),
        )
        loudspeaker = Loudspeaker()

        def follow(event: LiveEvent) -> None:
            self.record.began_ns = _ns(mouth.began_s)
            self.record.follow(event)
            self._watch(event, call, mouth)

        async with client.call() as call:
            try:
                await converse(call, mouth, loudspeaker, on_event=follow)
            except StageError as error:
                self.record.error = type(error).__name__
            finally:
                self._crowd.leave(self._number)
                for task in self._stopping:
                    task.cancel()
        loudspeaker.catch_up()
        self.record.said = mouth.said
        self.record.last_sounds_ns = loudspeaker.last_ns
        self.record.underruns = loudspeaker.underruns
        self.record.lags_ms = list(call.lags_ms)
        self.record.late_ms = mouth.late_ms

    def _watch(self, event: LiveEvent, call: LiveCall, mouth: Mouth) -> None:
        """Decide what is done next."""
        if event.type == "transcript":
            self._stop = next(self._stops, None)
        mouth.follow(event)
        if event.type == "interrupted" and event.turn in self.record.stops_ns:
            mouth.go_on()
        if event.type in ("answered", "interrupted"):
            self._crowd.advance()
        if self._stop is not None and event.type == self._stop.after:
            task = asyncio.create_task(self._stop_later(self._stop.delay_s, event.turn, call))
            self._stopping.add(task)
            self._stop = None

    async def _stop_later(self, delay_s: float, turn: str, call: LiveCall) -> None:
        await asyncio.sleep(delay_s)
        self.record.stops_ns[turn] = time.monotonic_ns()
        with suppress(StageError):  # a call that is over, as it is told elsewhere
            await call.stop_answer()


def talk(
    address: str, model: str, scripts: Sequence[Script], advance: Callable[[], None]
) -> list[Record]:
    """Have all of them speak at once; `advance` is called when an answer is over."""
    return asyncio.run(_talk(address, model, scripts, advance))


async def _talk(
    address: str, model: str, scripts: Sequence[Script], advance: Callable[[], None]
) -> list[Record]:
    crowd = Crowd(len(scripts), advance)
    people = [Person(number, script, crowd) for number, script in enumerate(scripts)]
    async with LiveClient(address, model=model) as client, asyncio.TaskGroup() as group:
        for person in people:
            group.create_task(person.speak(client))
    return [person.record for person in people]


def _ns(seconds_: float) -> int:
    return round(seconds_ * NS_PER_S)
