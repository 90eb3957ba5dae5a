"""Telephone numbers digit by digit, found by phonenumbers."""

import re
from collections.abc import Iterator

from phonenumbers import Leniency, PhoneNumberMatcher

_HOME = "US"
"""Where a number without a country is."""

_SHORTEST_WITHOUT_BREAKS = 10


def say_telephones(text: str) -> str:
    """The text with "5 5 5, 1 2 3, 4 5 6 7"; numbers that nobody can have count too."""
    return "".join(_parts(text))


def _parts(text: str) -> Iterator[str]:
    at = 0
    for found in PhoneNumberMatcher(text, _HOME, leniency=Leniency.POSSIBLE):
        if _is_telephone(found.raw_string, text[: found.start]):
            yield text[at : found.start] + _said(found.raw_string)
            at = found.end
    yield text[at:]


def _is_telephone(written: str, before: str) -> bool:
    """Not spelled already, nor the end of something else, nor a short number without breaks."""
    if re.search(r"[\w.,$£€]$", before) or not re.search(r"\d\d", written):
        return False
    if _is_range(written) or re.fullmatch(r"\d{1,3}(?: \d{3})+", written):
        return False
    return not written.isdigit() or len(written) >= _SHORTEST_WITHOUT_BREAKS


def _is_range(written: str) -> bool:
    """ "800-1000": two round numbers, the larger one last."""
    ends = re.fullmatch(r"(\d+0)-(\d+0)", written)
    return ends is not None and int(ends[1]) < int(ends[2])


def _said(written: str) -> str:
    plus = "plus " if written.startswith("+") else ""
    return plus + ", ".join(map(" ".join, re.findall(r"\d+", written)))
