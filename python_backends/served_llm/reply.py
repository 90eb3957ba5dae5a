"""Text as it comes from an LLM, to pieces that are spoken. Pure but for the request's responses."""

from typing import Final

from python_backends.ar_loop.answer import Answer
from python_backends.ar_loop.text import PieceSplitter, StopStrings

MOST_CHARS_A_TOKEN: Final = 100
"""An endpoint that sends more than so many for each token that it may has not kept to its limit."""


class Reply:
    """One answer; a piece leaves as soon as its clause is complete. `limit`: of its tokens."""

    def __init__(self, answer: Answer, limit: int) -> None:
        options = answer.request.options
        self._answer = answer
        self._streams = options.stream
        self._stops = StopStrings(options.stop)
        self._pieces = PieceSplitter()
        self._room = MOST_CHARS_A_TOKEN * limit
        self._begun = False
        self._whole = ""

    def add(self, fresh: str) -> str:
        """Text that has come. Why nothing more of it is wanted; empty: more is."""
        if fresh and not self._begun:
            self._begun = True
            self._answer.started()
        self._room -= len(fresh)
        self._say(self._stops.add(fresh))
        return "stop" if self._stops.found else "length" if self._room < 0 else ""

    def close(self, reason: str) -> None:
        """The answer has ended."""
        self._say(self._stops.rest())
        rest = self._pieces.rest() if self._streams else self._whole.strip()
        self._answer.emit(rest, last=True, status=reason)
        self._answer.request.finish()

    def _say(self, fresh: str) -> None:
        if not self._streams:
            self._whole += fresh
            return
        for piece in self._pieces.add(fresh):
            self._answer.emit(piece, last=False)
