"""Tokens to text, and text to pieces that can be spoken while the rest is still being thought."""

import re
from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
SENTENCE_ENDS = ".!?"
CLAUSE_ENDS = ".!?,;:"
CLOSERS = "\"')]\u201d\u2019"
"""What may stand between a mark and the white space after it."""

ABBREVIATION = re.compile(
    r"\b(?:Mrs?|Ms|Dr|Prof|Rev|Gen|Gov|Sen|Capt|Lt|Sgt|St|Mt|Ft|(?<=[a-z] )No|vs|[eE]\.g|[iI]\.e"
    r"|Jan|Feb|Mar|Apr|Aug|Sept?|Oct|Nov|Dec|approx|Fig|[A-HJ-Z])\.$"
)
"""What belongs to the word after it: alone, "St." is read as a street, and "Dr." with a pause.
"No." may be an answer, so it counts inside a sentence only."""

LONGEST_ABBREVIATION = 10

MIN_FIRST_CHARS = 4
MIN_CLAUSE_CHARS = 24
MAX_PIECE_CHARS = 160


class Detokenizer:
    """Incremental detokenisation that never splits a character.

    `decode` turns ids into text; replacement marks at its end may still become a character, so
    they are held back. A token costs the same however long the answer is: decoded again are the ids
    since the last complete text, and as context those of one token before, since some decoders
    treat the first id of a text in their own way.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._context = 0
        """How many of them are there as context, their text given already."""

        self._given = 0
        """Characters of their text that were given."""

    def add(self, token: int) -> str:
        """Text that became certain with this token."""
        self._ids.append(token)
        text = self._decode(self._ids)
        fresh = self._advance(text.rstrip(REPLACEMENT))
        if not text.endswith(REPLACEMENT):
            self._ids = self._ids[self._context :]
            self._context, self._given = len(self._ids), len(self._decode(self._ids))
        return fresh

    def rest(self) -> str:
        """Text still held back; an incomplete character at the end stays a replacement mark."""
        return self._advance(self._decode(self._ids))

    def _advance(self, text: str) -> str:
        fresh = text[self._given :]
        self._given = len(text)
        return fresh


class StopStrings:
    """Ends a text before the first of some strings, holding back what may still become one.

    Of several, the one that is complete first counts, and of those the longest: so what is found
    does not depend on how the text arrives.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = sorted(stops, key=len, reverse=True)
        self._held = ""
        self.found = False

    def add(self, fresh: str) -> str:
        """Text that is certainly kept; nothing more once a stop string was found."""
        if self.found or not self._stops:
            return "" if self.found else fresh
        self._held += fresh
        ends = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        self.found = bool(ends)
        return self._release(min(ends)[1] if ends else self._doubtful(), keep=not ends)

    def rest(self) -> str:
        """The text has ended: what was held back is kept after all."""
        return self._release(len(self._held), keep=False)

    def _doubtful(self) -> int:
        """Where the longest end of the held text begins that a stop string begins with."""
        size = len(self._held)
        longest = max(map(len, self._stops)) - 1
        return next(
            (at for at in range(max(0, size - longest), size) if self._may_begin(self._held[at:])),
            size,
        )

    def _may_begin(self, end: str) -> bool:
        return any(stop.startswith(end) for stop in self._stops)

    def _release(self, count: int, *, keep: bool) -> str:
        released, rest = self._held[:count], self._held[count:]
        self._held = rest if keep else ""
        return released


class PieceSplitter:
    """Cuts growing text into clause-sized pieces: the first one short, later ones up to a sentence.

    A mark only ends a piece when white space follows it, or its closing quote, so "3.50" and "3:05"
    stay whole; only when something was said, so "1." stays with what it numbers; and not behind an
    abbreviation, so "Dr." stays with the name.
    """

    def __init__(self) -> None:
        self._text = ""
        self._pieces = 0

    def add(self, fresh: str) -> list[str]:
        """Pieces completed by `fresh`, without surrounding blanks."""
        self._text += fresh
        pieces: list[str] = []
        while (end := self._end()) is not None:
            piece, self._text = self._text[:end].strip(), self._text[end:]
            if piece:
                pieces.append(piece)
                self._pieces += 1
        return pieces

    def rest(self) -> str:
        """What is left when the text has ended."""
        piece, self._text = self._text.strip(), ""
        return piece

    def _end(self) -> int | None:
        """Where the next piece ends, or None while that is open."""
        for at, mark in enumerate(self._text[:-1][:MAX_PIECE_CHARS]):
            if mark in CLAUSE_ENDS and self._speakable(at, mark):
                closed = self._after_closers(at + 1)
                if closed <= MAX_PIECE_CHARS and self._text[closed : closed + 1].isspace():
                    return closed
        if len(self._text) > MAX_PIECE_CHARS:
            blank = self._text.rfind(" ", 0, MAX_PIECE_CHARS)
            return blank if blank > 0 else MAX_PIECE_CHARS
        return None

    def _after_closers(self, at: int) -> int:
        while self._text[at : at + 1] and self._text[at] in CLOSERS:
            at += 1
        return at

    def _speakable(self, at: int, mark: str) -> bool:
        if mark == "." and ABBREVIATION.search(
            self._text[max(0, at - LONGEST_ABBREVIATION) : at + 1]
        ):
            return False
        if not any(map(str.isalpha, self._text[:at])):
            return False
        if not self._pieces:
            return at + 1 >= MIN_FIRST_CHARS
        return mark in SENTENCE_ENDS or at + 1 >= MIN_CLAUSE_CHARS


def parts(text: str) -> list[str]:
    """A text of any length as pieces of MAX_PIECE_CHARS at most, as whole sentences where they fit.

    `speak` takes one of them at a time: a request there is one piece, of 20 s at most.
    """
    splitter = PieceSplitter()
    joined: list[str] = []
    for piece in [*splitter.add(text), splitter.rest()]:
        if joined and len(joined[-1]) + 1 + len(piece) <= MAX_PIECE_CHARS:
            joined[-1] += f"\n{piece}"  # what began a line, as items do, begins one still
        else:
            joined.append(piece)
    return [part for part in joined if part]
