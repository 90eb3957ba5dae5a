"""Answers of one turn leave in the order of their pieces, among those pieces that are here."""

from collections.abc import Callable

Send = Callable[[], None]


class ArrivedInOrder:
    """A piece waits for earlier ones of its turn that have arrived, and never for one that has not.

    So nothing is held back for ever, and nothing is remembered of a turn without open pieces.
    """

    def __init__(self) -> None:
        self._turns: dict[str, dict[int, Send | None]] = {}

    def arrive(self, turn: str, piece: int) -> None:
        """Expect the answer of `piece`. ValueError when that is expected already."""
        pieces = self._turns.setdefault(turn, {})
        if piece in pieces:
            raise ValueError(f"piece {piece} of turn {turn!r} is open already")
        pieces[piece] = None

    def ready(self, turn: str, piece: int, send: Send) -> None:
        """Send the answer of `piece` now, or after the earlier ones; at once if the turn has been
        abandoned."""
        pieces = self._turns.get(turn, {})
        if piece not in pieces:
            send()
            return
        pieces[piece] = send
        while pieces and (release := pieces[min(pieces)]) is not None:
            pieces.pop(min(pieces))
            release()
        if not pieces:
            self._turns.pop(turn, None)

    def abandon(self, turn: str) -> list[Send]:
        """Forget a turn; returns what was held back, in order."""
        pieces = self._turns.pop(turn, {})
        return [send for piece in sorted(pieces) if (send := pieces[piece]) is not None]

    def check_integrity(self) -> None:
        """What may leave has left, and no empty turn is kept."""
        assert all(pieces and pieces[min(pieces)] is None for pieces in self._turns.values())

    def __len__(self) -> int:
        return len(self._turns)
