"""What one turn adds to a conversation."""

import json
from collections.abc import Iterable, Sequence

from python_backends.ordering.prompt import Utterance


class Exchange:
    """What was heard and what has been answered so far: of an answer that was broken off, the
    pieces that had left."""

    def __init__(self) -> None:
        self._heard = ""
        self._pieces: list[str] = []

    def add(self, heard: str, text: str) -> None:
        """Take note of one chunk."""
        self._heard = self._heard or heard.strip()
        self._pieces.append(text)

    @property
    def utterances(self) -> list[Utterance]:
        """The user's line and the answer to it; nothing if nothing was heard."""
        if not self._heard:
            return []
        reply = join_pieces(self._pieces)
        user = Utterance("user", self._heard)
        return [user, Utterance("assistant", reply)] if reply else [user]


def join_pieces(pieces: Iterable[str]) -> str:
    """The pieces of an answer as one text."""
    return " ".join(piece.strip() for piece in pieces if piece.strip())


def keep_last(lines: list[Utterance], most_chars: int) -> None:
    """Forget the oldest lines of a conversation that has become too long; never the last one."""
    while len(lines) > 1 and sum(len(line.text) for line in lines) > most_chars:
        del lines[0]


def history_json(history: Sequence[Utterance]) -> str:
    """HISTORY, as `prompt.parse_history` reads it."""
    lines = [{"role": line.role, "text": line.text} for line in history]
    return json.dumps(lines, ensure_ascii=False)
