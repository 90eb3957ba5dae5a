"""What no trainer sees: sentences that measure the voice, and numbers that it must read right.

The sentences are agent replies, general ones, then orders, prices, times, names, questions, short
and long ones.
"""

import json
from dataclasses import dataclass
from typing import Final

from build.voice.amounts import readings
from build.voice.spelling import respelt
from build.voice.weights import FOLDER

UNSEEN: Final = FOLDER / "unseen.txt"
READ_RIGHT: Final = FOLDER / "read_right.json"

SENTENCES: Final[tuple[str, ...]] = tuple(UNSEEN.read_text("utf-8").splitlines())


@dataclass(frozen=True)
class Case:
    """A text with a price, a time or a number in it."""

    text: str
    words: str
    """The same, as it is to be read; without figures, as `also`."""

    also: tuple[str, ...]
    """Other ways to read it that are right."""

    def is_heard_right(self, heard: str) -> bool:
        """The amounts that a listener wrote down may have been spoken as those of the words."""
        right = {reading for words in (self.words, *self.also) for reading in readings(words)}
        return not right.isdisjoint(readings(respelt(heard, self.words)))


CASES: Final[tuple[Case, ...]] = tuple(
    Case(one["text"], one["words"], tuple(one["also"]))
    for one in json.loads(READ_RIGHT.read_text("utf-8"))
)
