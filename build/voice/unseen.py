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
_LIKE_NUMBERS: Final = {"for": "four", "to": "two", "too": "two"}
"""Words that sound like numbers: Whisper writes one for the other."""

_UNITS: Final = ("dollar", "dollars", "cent", "cents", "euro", "euros", "pound", "pounds", "pence")
_PARTS: Final = ("hundred", "thousand", "point", "half", "first", "third", "oh", "o", "st", "rd")
_OTHERS: Final = ("percent", "am", "pm", "clock", "oclock")
_AMOUNTS: Final = {*words(" ".join(map(str, range(100)))), *_UNITS, *_PARTS, *_OTHERS}


@dataclass(frozen=True)
class Case:
    """A text with a price, a time or a number in it."""

    text: str
    words: str
    """The same, as it is to be read."""

    also: tuple[str, ...]
    """Other spellings of the same words that a listener may choose."""

    def is_heard_right(self, heard: str) -> bool:
        """The numbers that a listener wrote down, and what they count, are those of the words."""
        return amounts(heard) in [amounts(one) for one in (self.text, self.words, *self.also)]


def amounts(text: str) -> list[str]:
    """Its numbers as they are spoken below a hundred, in figures above, and units of them; "p.m."
    as one word, other words left out."""
    spoken = words(_HALVES_OF_THE_DAY.sub(r"\1m", text.lower()))
    alike = [_LIKE_NUMBERS.get(word, word) for word in spoken]
    return [word for word in alike if word in _AMOUNTS or word.isdecimal()]


CASES: Final[tuple[Case, ...]] = tuple(
    Case(one["text"], one["words"], tuple(one["also"]))
    for one in json.loads((FOLDER / "read_right.json").read_text("utf-8"))
)
