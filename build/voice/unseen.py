"""What no trainer sees: sentences that measure the voice, and numbers that it must read right.

The sentences are agent replies, general ones, then orders, prices, times, names, questions, short
and long ones.
"""

import json
import re
from dataclasses import dataclass
from typing import Final

from build.voice.weights import FOLDER
from client.wer import words

SENTENCES: Final[tuple[str, ...]] = tuple((FOLDER / "unseen.txt").read_text("utf-8").splitlines())

_HALVES_OF_THE_DAY: Final = re.compile(r"\b([ap])\.? ?m\b\.?")


@dataclass(frozen=True)
class Case:
    """A text with a price, a time or a number in it."""

    text: str
    words: str
    """The same, as it is to be read."""

    also: tuple[str, ...]
    """Other spellings of the same words that a listener may choose."""

    def is_heard_right(self, heard: str) -> bool:
        """What a listener wrote down is one of the spellings of the words."""
        return _spelt(heard) in {_spelt(one) for one in (self.text, self.words, *self.also)}


def _spelt(text: str) -> str:
    """Words without punctuation, small numbers and dollars as they are spoken, "p.m." as one."""
    return " ".join(words(_HALVES_OF_THE_DAY.sub(r"\1m", text.lower())))


CASES: Final[tuple[Case, ...]] = tuple(
    Case(one["text"], one["words"], tuple(one["also"]))
    for one in json.loads((FOLDER / "read_right.json").read_text("utf-8"))
)
