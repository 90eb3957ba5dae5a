"""Word error rate between a text and what was heard of it."""

import re
from collections.abc import Sequence

_TEENS = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_SMALL = (*_ONES, "ten", "eleven", "twelve", *_TEENS)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SPELLINGS = {"ok": "okay"}


def words(text: str) -> list[str]:
    """Words in lower case without punctuation; numbers below 100 as they are spoken."""
    plain = re.sub(r"['\u2019]", "", text.lower())
    found = re.findall(r"[^\W\d_]+|\d+", plain)
    return [word for token in found for word in _spoken(_SPELLINGS.get(token, token))]


def word_error_rate(reference: str, heard: str) -> float:
    """Substitutions, deletions and insertions by the reference's words (Levenshtein)."""
    expected, got = words(reference), words(heard)
    if not expected:
        return float(bool(got))
    return _edits(expected, got) / len(expected)


def _spoken(token: str) -> list[str]:
    if not token.isdecimal() or int(token) >= 100:
        return [token]
    tens, ones = divmod(int(token), 10)
    if tens < 2:
        return [_SMALL[int(token)]]
    return [_TENS[tens - 2], *([_SMALL[ones]] if ones else [])]


def _edits(expected: Sequence[str], got: Sequence[str]) -> int:
    row = list(range(len(got) + 1))
    for above, word in enumerate(expected):
        diagonal, row[0] = row[0], above + 1
        for at, other in enumerate(got, 1):
            step = min(row[at] + 1, row[at - 1] + 1, diagonal + (word != other))
            diagonal, row[at] = row[at], step
    return row[-1]
