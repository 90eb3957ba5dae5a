"""Rewriting: patterns, and what is said for them, one after the other."""

import re
from collections.abc import Callable, Iterable

Said = str | Callable[[re.Match[str]], str]
"""A replacement with \\1 and the like, or a function of the match."""

NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"


class Rules:
    """Rules in order; each sees what those before it have made of the text."""

    def __init__(self, rules: Iterable[tuple[str, Said]]) -> None:
        self._rules = [(re.compile(pattern), said) for pattern, said in rules]

    def __call__(self, text: str) -> str:
        for pattern, said in self._rules:
            text = pattern.sub(said, text)
        return text


def any_of(words: Iterable[str]) -> str:
    """A pattern of the words, longer ones first."""
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
