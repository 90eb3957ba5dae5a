"""Web and e-mail addresses as one says them, found by linkify-it."""

import re
from itertools import takewhile

from linkify_it import LinkifyIt
from linkify_it.main import Match

_FINDER = LinkifyIt()
_SCHEME = re.compile(r"^(?:[a-z]+:)?//|^mailto:", re.IGNORECASE)
_SAYABLE = re.compile(r"[A-Za-z]+(?:[-_.][A-Za-z0-9]+)*|\d{1,4}")
"""A segment of a path that one would say: no hash, no code."""

MOST_SEGMENTS = 3
_MARKS = {".": " dot ", "-": " dash ", "_": " underscore ", "+": " plus ", ":": " colon "}


def say_addresses(text: str) -> str:
    """The text with "example dot com slash docs" and "me at example dot com"."""
    at, parts = 0, []
    for found in _FINDER.match(text) or ():
        if not _is_typing_error(found):
            parts += [text[at : found.index], _said(found)]
            at = found.last_index
    return "".join([*parts, text[at:]])


def _is_typing_error(found: Match) -> bool:
    """ "Done.It works": a blank is missing after a sentence."""
    end = re.split(r"[/?#:]", found.text)[0].rpartition(".")[2]
    return not found.schema and end.istitle()


def _said(found: Match) -> str:
    address = _SCHEME.sub("", found.text)
    name, at, rest = address.rpartition("@")
    if at and "/" not in name:
        return f"{_marks(name)} at {_host(rest)}"
    host, *path = re.split(r"[?#]", address)[0].split("/")
    sayable = list(takewhile(_SAYABLE.fullmatch, path))[:MOST_SEGMENTS]
    return " slash ".join([_host(host), *map(_marks, sayable)])


def _host(host: str) -> str:
    """Two letters at the end are a country or the like, and spelled: "dot U K"."""
    host = host.removeprefix("www.")
    start, _, end = host.rpartition(".")
    if len(end) == 2 and end.isalpha():
        return f"{_marks(start)} dot {' '.join(end.upper())}"
    return _marks(host)


def _marks(text: str) -> str:
    return "".join(_MARKS.get(character, character) for character in text)
