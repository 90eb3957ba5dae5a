"""What of an answer has been heard: its text, up to a position in its sound."""

from dataclasses import dataclass

from python_backends.ordering.exchange import join_pieces

CHARS_PER_S = 15.0
"""Of speech, until some of this answer has been spoken: how long a piece will be of which only a
part has come."""


@dataclass
class _Piece:
    text: str = ""
    seconds: float = 0.0
    whole: bool = False


class Said:
    """Pieces of an answer with the sound that belongs to each, as they come."""

    def __init__(self) -> None:
        self._pieces: dict[int, _Piece] = {}

    def add(self, piece: int, text: str, seconds: float, *, whole: bool) -> None:
        """A chunk of a piece; `whole`: its last."""
        known = self._pieces.setdefault(piece, _Piece())
        known.text += text
        known.seconds += seconds
        known.whole = known.whole or whole

    @property
    def text(self) -> str:
        """All of it."""
        return join_pieces(one.text for one in self._pieces.values())

    def up_to(self, played_s: float) -> str:
        """What had been said at `played_s`: pieces that were over, and of the one that was not as
        many whole words as its part of the sound holds letters for."""
        heard = []
        for one in self._pieces.values():
            seconds = self._length_s(one)
            if played_s < seconds - 1e-6 or not one.whole:
                heard.append(_first(one.text, max(0.0, played_s) / seconds if seconds else 0.0))
                break
            heard.append(one.text)
            played_s -= seconds
        return join_pieces(heard)

    def _length_s(self, one: _Piece) -> float:
        """Of its sound, or what it will be."""
        return one.seconds if one.whole else max(one.seconds, len(one.text) / self._pace())

    def _pace(self) -> float:
        over = [one for one in self._pieces.values() if one.whole and one.seconds]
        seconds = sum(one.seconds for one in over)
        return sum(len(one.text) for one in over) / seconds if seconds else CHARS_PER_S


def _first(text: str, share: float) -> str:
    """The whole words within the first part of a text."""
    most = share * len(text) + 1e-6
    words: list[str] = []
    length = 0
    for word in text.split():
        length = length + len(word) + (1 if words else 0)
        if length > most:
            break
        words.append(word)
    return " ".join(words)
