"""The amounts in a text, as they may be spoken: numbers, and what they count.

A listener that writes "$14.50", "945" or "1/2" does not say which words it heard. So figures have
several readings, and written words have one.
"""

import re
from collections.abc import Iterator
from itertools import product
from typing import Final

from client.wer import words

Reading = tuple[str, ...]
"""Words, "and" and whatever is no amount left out."""

_MONEY: Final = {"$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "pence")}
_PARTS: Final = {"2": "half", "3": "third", "4": "quarter"}
_FRACTIONS: Final = {"½": "1/2", "⅓": "1/3", "¼": "1/4", "¾": "3/4"}
_MONTHS: Final = (
    "january|february|march|april|may|june|july|august|september|october|november|december"
)
_IRREGULAR: Final = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_LONGEST_NUMBER: Final = 4
"""Digits; longer ones without a comma are told digit by digit."""

_UNITS: Final = ("dollar", "dollars", "cent", "cents", "euro", "euros", "pound", "pounds", "pence")
_OTHERS: Final = ("percent", "am", "pm", "oclock", "point", "hundred", "thousand", "oh")

_HALF_OF_THE_DAY: Final = re.compile(r"\b([ap])\.? ?m\b\.?")
_TOKEN: Final = re.compile(
    rf"""
      (?P<sign>[$€£])\s?(?P<whole>\d[\d,]*)(?:\.(?P<hundredths>\d\d)\b)?
    | (?P<coins>\d+)\s?¢
    | (?P<hour>\d{{1,2}}):(?P<minute>\d\d)
    | (?P<above>\d)/(?P<below>[234])\b
    | (?P<nth>\d+)(?:st|nd|rd|th)\b
    | (?:{_MONTHS})\s(?P<date>\d{{1,2}})\b
    | (?P<before>\d*)\.(?P<after>\d+)
    | (?P<grouped>\d{{1,3}}(?:,\d{{3}})+)
    | (?P<plain>\d+)
    | (?P<words>[^\W\d]+(?:['\u2019][^\W\d]+)*)
    """,
    re.VERBOSE,
)


def readings(text: str) -> set[Reading]:
    """All ways in which the amounts of a text may have been spoken; one where it has no figures."""
    plain = text.lower().replace("%", " percent").replace("per cent", "percent")
    for sign, written in _FRACTIONS.items():
        plain = plain.replace(sign, written)
    plain = _HALF_OF_THE_DAY.sub(r"\1m", plain)
    each = [list(_ways(token)) for token in _TOKEN.finditer(plain)]
    return {tuple(word for way in ways for word in way) for ways in product(*each)}


def _ways(token: re.Match[str]) -> Iterator[list[str]]:
    """Readings of one number or word."""
    match token.lastgroup:
        case "whole" | "hundredths":
            yield _price(token["sign"], int(token["whole"].replace(",", "")), token["hundredths"])
        case "coins":
            yield _counted(int(token["coins"]), "cent")
        case "minute":
            hour = _cardinal(int(token["hour"]))
            yield hour + _two_digits(token["minute"])
            if token["minute"] == "00":
                yield [*hour, "oclock"]
        case "below":
            yield [*_cardinal(int(token["above"])), _PARTS[token["below"]]]
            if token["above"] == "1":
                yield [_PARTS[token["below"]]]
        case "nth":
            yield _ordinal(int(token["nth"]))
        case "date":
            yield _cardinal(int(token["date"]))
            yield _ordinal(int(token["date"]))
        case "after":
            yield [*_cardinal(int(token["before"] or 0)), "point", *_digits(token["after"])]
            if token["before"] and len(token["after"]) == 2:
                yield _cardinal(int(token["before"])) + _two_digits(token["after"])
        case "grouped":
            yield _cardinal(int(token["grouped"].replace(",", "")))
        case "plain":
            yield from _number(token["plain"])
        case _:
            yield [word for word in map(_same, words(token[0])) if word in _AMOUNTS]


def _number(figures: str) -> Iterator[list[str]]:
    """A plain one: 1250 may be a count, a year, a time without its colon, or digits."""
    yield _digits(figures)
    yield _digits(figures, "oh")
    if len(figures) <= _LONGEST_NUMBER and figures[0] != "0":
        yield _cardinal(int(figures))
    if len(figures) in (3, 4) and figures[0] != "0":
        yield _cardinal(int(figures[:-2])) + _two_digits(figures[-2:])


def _price(sign: str, whole: int, hundredths: str | None) -> list[str]:
    large, small = _MONEY[sign]
    rest = _counted(int(hundredths), small) if hundredths and int(hundredths) else []
    return [*_counted(whole, large), *rest] if whole or not rest else rest


def _counted(count: int, unit: str) -> list[str]:
    return [*_cardinal(count), unit if count == 1 or unit == "pence" else f"{unit}s"]


def _cardinal(number: int) -> list[str]:
    """Below a million, as Americans say it: 103 is "one hundred three"."""
    thousands, below = divmod(number, 1000)
    hundreds, rest = divmod(below, 100)
    found = [*_cardinal(thousands), "thousand"] if thousands else []
    found += [*words(str(hundreds)), "hundred"] if hundreds else []
    return found + words(str(rest)) if rest or not found else found


def _ordinal(number: int) -> list[str]:
    *front, last = _cardinal(number)
    regular = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    return [*front, _IRREGULAR.get(last, regular)]


def _digits(figures: str, zero: str = "zero") -> list[str]:
    return [zero if figure == "0" else words(figure)[0] for figure in figures]


def _two_digits(figures: str) -> list[str]:
    """Minutes, cents, the end of a year: "oh five", and nothing for a full hour."""
    if figures == "00":
        return []
    return ["oh", *words(figures[1])] if figures[0] == "0" else words(figures)


def _same(word: str) -> str:
    return "oh" if word == "o" else word


_AMOUNTS: Final = {
    *words(" ".join(map(str, range(100)))),
    *(word for number in range(1, 32) for word in _ordinal(number)),
    *_PARTS.values(),
    *_UNITS,
    *_OTHERS,
}
