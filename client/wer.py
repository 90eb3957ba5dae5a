"""Word error rate between a text and what was heard of it."""

import re

import jiwer

_TEENS = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_SMALL = (*_ONES, "ten", "eleven", "twelve", *_TEENS)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SPELLINGS = {"ok": "okay"}
_MONEY = re.compile(r"\$(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d\d)\b)?")


def words(text: str) -> list[str]:
    """Words in lower case without punctuation; numbers below 100 and dollars as spoken."""
    plain = _MONEY.sub(_dollars, re.sub(r"['\u2019]", "", text.lower()))
    found = re.findall(r"[^\W\d_]+|\d+", plain)
    return [word for token in found for word in _spoken(_SPELLINGS.get(token, token))]


def word_error_rate(reference: str, heard: str) -> float:
    """Substitutions, deletions and insertions, by the number of words in the reference."""
    expected, got = words(reference), words(heard)
    if not expected:
        return float(bool(got))
    return float(jiwer.wer(" ".join(expected), " ".join(got)))


def _dollars(amount: re.Match[str]) -> str:
    dollars, cents = int(amount[1].replace(",", "")), int(amount[2] or 0)
    said = [_counted(dollars, "dollar")] if dollars or not cents else []
    return " and ".join([*said, _counted(cents, "cent")] if cents else said)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _spoken(token: str) -> list[str]:
    if not token.isdecimal() or int(token) >= 100:
        return [token]
    tens, ones = divmod(int(token), 10)
    if tens < 2:
        return [_SMALL[int(token)]]
    return [_TENS[tens - 2], *([_SMALL[ones]] if ones else [])]
