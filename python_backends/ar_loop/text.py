"""Tokens to text, and text to pieces that can be spoken while the rest is still being thought."""

from collections.abc import Callable

REPLACEMENT = "\ufffd"
SENTENCE_ENDS = ".!?"
CLAUSE_ENDS = ".!?,;:"
CLOSERS = "\"')]\u201d\u2019"
"""What may stand between a mark and the white space after it."""

MIN_FIRST_CHARS = 4
MIN_CLAUSE_CHARS = 24
MAX_PIECE_CHARS = 160


class Detokenizer:
    """Incremental detokenisation that never splits a character.

    `decode` turns all ids so far into text; what ends in an incomplete character is held back.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._sent = ""

    def add(self, token: int) -> str:
        """Text that became certain with this token."""
        self._ids.append(token)
        text = self._decode(self._ids)
        return "" if text.endswith(REPLACEMENT) else self._advance(text)

    def rest(self) -> str:
        """Text still held back; an incomplete character at the end stays a replacement mark."""
        return self._advance(self._decode(self._ids))

    @property
    def text(self) -> str:
        """Everything returned so far."""
        return self._sent

    def _advance(self, text: str) -> str:
        fresh = text[len(self._sent) :]
        self._sent = text
        return fresh


class PieceSplitter:
    """Cuts growing text into clause-sized pieces: the first one short, later ones up to a sentence.

    A mark only ends a piece when white space follows it, or its closing quote, so "3.50" and "3:05"
    stay whole; and only when something was said, so "1." stays with what it numbers.
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
        if not any(map(str.isalpha, self._text[:at])):
            return False
        if not self._pieces:
            return at + 1 >= MIN_FIRST_CHARS
        return mark in SENTENCE_ENDS or at + 1 >= MIN_CLAUSE_CHARS
