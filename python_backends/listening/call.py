"""One caller on the line."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.bridge import Request
from python_backends.bridge.tensors import text
from python_backends.errors import InvalidInput, Overloaded, StageError
from python_backends.listening.ear import Ear, Judge, Transcribe
from python_backends.listening.news import News, to_json
from python_backends.listening.settings import ListenSettings
from python_backends.peer import Peer

MOST_AHEAD_S = 10
"""Sound of a caller that may wait to be listened to."""

MAX_REPORT_CHARS = 4096
MAX_CALL_CHARS = 96
"""Of a call's id: the ids of what is done for it are longer."""


@dataclass(frozen=True)
class Line:
    """What every call needs of the loop that it is in."""

    clock: Callable[[], float]
    judge: Judge
    transcribe: Callable[[Request], Transcribe]
    peer: Peer
    begin: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
    """Work on the side; what it fails of is a bug, and the whole loop's."""

    end: "Callable[[Call, StageError], None]"
    """A call is over, with this error."""


class Call:
    """`request`: the one that began the sequence. All that is told goes with it, since there is not
    always another one open, and whoever leaves is noticed by it."""

    def __init__(self, request: Request, line: Line, settings: ListenSettings) -> None:
        options = request.options
        self.request = request
        self._line = line
        self.id = owner_of(request)
        if len(self.id) > MAX_CALL_CHARS:
            raise InvalidInput(
                f"the call's id has {len(self.id)} characters; {MAX_CALL_CHARS} are accepted"
            )
        self.heard_s = line.clock()
        """When its last chunk came."""

        self.error: StageError | None = None
        self.over = False
        self.ear = Ear(
            self.id,
            rate_hz=options.rate_hz,
            settings=settings.endpoint,
            judge=line.judge,
            transcribe=line.transcribe(request),
            tell=self.news,
            partial_s=settings.partial_ms / 1000 if options.partials else 0.0,
        )

    def hear(self, request: Request, now: float, done: Callable[[], None]) -> None:
        """A chunk, where `request` has one; `done` is called when it has been listened to.

        InvalidInput for what is none, Overloaded when too much waits already, and what the call was
        ended with where the answer to a report could not be told.
        """
        report, chunk = report_of(request), pcm_of(request)
        self.heard_s = now
        if report is not None:
            self.report(report)
        if self.error is not None:
            raise self.error
        if chunk.size and self.ear.ahead_s > MOST_AHEAD_S:
            raise Overloaded(
                f"{self.ear.ahead_s:.0f} s of sound wait to be listened to; at most "
                f"{MOST_AHEAD_S} may",
                reason="caller",
                retry_after_ms=1000,
            )
        self.ear.hear(chunk, done)

    def judged(self, probability: float) -> None:
        """The next window contains speech with this probability."""
        self.ear.judged(probability)

    def news(self, news: News) -> None:
        """The ear has heard something."""
        self.tell(to_json(news))

    def report(self, said: Mapping[str, Any]) -> None:
        """The caller tells something beside sound. InvalidInput for what is not known."""
        raise InvalidInput("REPORT is for calls that are answered")

    async def until_quiet(self) -> None:
        """Return when nothing more will be told, after the last chunk."""
        await self.ear.until_quiet()

    def drop(self) -> None:
        """The call is over: nothing is told or begun any more."""
        self.ear.drop()

    def tell(self, event: str, outputs: Mapping[str, NDArray[Any]] | None = None) -> None:
        """An EVENT, as JSON, and more tensors with it. If it can't be told, the call is over."""
        if self.over:
            return
        try:
            self.request.send({"EVENT": text(event), **(outputs or {})})
        except StageError as error:
            self._line.end(self, error)


def owner_of(request: Request) -> str:
    """Whose request it is: its id, up to a slash. A caller may number its requests behind one."""
    return request.turn.partition("/")[0]


def pcm_of(request: Request) -> NDArray[np.uint8]:
    """PCM as a row of bytes; empty where there is none. InvalidInput for more than one row."""
    values = request.optional("PCM")
    if values is None:
        return np.zeros(0, np.uint8)
    if values.ndim != 2 or values.shape[0] != 1:
        raise InvalidInput(f"PCM has shape {list(values.shape)}; [1, bytes] is accepted")
    most = 2 * MOST_AHEAD_S * request.options.rate_hz
    if values.size > most:
        raise InvalidInput(f"PCM has {values.size} bytes; a chunk of at most {most} is accepted")
    return np.asarray(values[0], np.uint8)


def report_of(request: Request) -> Mapping[str, Any] | None:
    """REPORT as a JSON object, where there is one; InvalidInput for anything else."""
    if request.optional("REPORT") is None:
        return None
    try:
        found = json.loads(request.text("REPORT", most=MAX_REPORT_CHARS))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInput("REPORT is a JSON object")
    return found
