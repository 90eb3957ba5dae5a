"""Text to the phonemes of the voice: the server and the trainer both read with this."""

import json
from collections.abc import Callable
from importlib import resources

from python_backends.spoken.words import spoken_text

_PUNCTUATION_TAGS = frozenset([".", ",", "-LRB-", "-RRB-", "``", '""', "''", ":", "$", "#", "NFP"])
_UNKNOWN_TO_THE_VOICE = str.maketrans({"—": ",", "…": ".", **dict.fromkeys('“”"()')})
"""Marks that hibari makes by itself and no training sentence has."""

_ENDS = frozenset(".!?")
"""hibari takes the full stop of a last "a.m." for the abbreviation's, and the voice stays up."""

_FIRST_TEXT = "Call brillig at +1 212 555 0123, or see example.com."
"""Loads what the libraries would otherwise load while the first turn waits: 100 ms."""


class Phonemizer:
    """English text to phoneme ids of the hibari/Kokoro alphabet."""

    def __init__(self) -> None:
        from hibari.g2p import G2P

        self._g2p = G2P(british=False)
        self._g2p.tagger = _with_numbers(self._g2p.tagger)
        vocabulary = resources.files("hibari") / "assets" / "vocab.json"
        self._ids: dict[str, int] = json.loads(vocabulary.read_text(encoding="utf-8"))
        self(_FIRST_TEXT)

    def __call__(self, line: str) -> list[int]:
        """Ids of what can be pronounced; empty for punctuation, emoji and blanks alone.

        ValueError for what the G2P library cannot read.
        """
        words = spoken_text(line)
        if not words:
            return []
        try:
            symbols: str = self._g2p(words).translate(_UNKNOWN_TO_THE_VOICE)
        except Exception as fault:  # it raises several types over rare characters
            raise ValueError(f"the text cannot be read aloud: {fault}") from fault
        if words[-1] in _ENDS and not symbols.endswith(words[-1]):
            symbols += words[-1]
        return [self._ids[symbol] for symbol in symbols if symbol in self._ids]


def _with_numbers(tagger: Callable[[list[str]], list[str]]) -> Callable[[list[str]], list[str]]:
    """hibari leaves out what its tagger takes for punctuation, and that is at times a number."""

    def tagged(words: list[str]) -> list[str]:
        return [_tag(word, tag) for word, tag in zip(words, tagger(words), strict=True)]

    return tagged


def _tag(word: str, tag: str) -> str:
    has_digits = any(map(str.isdigit, word))
    return "CD" if has_digits and tag in _PUNCTUATION_TAGS else tag
