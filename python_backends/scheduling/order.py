"""Responses of one turn leave in (piece, chunk) order, whatever order they were made in."""

from collections.abc import Callable
from dataclasses import dataclass, field

Send = Callable[[], None]


@dataclass
class _Turn:
    next: tuple[int, int] = (0, 0)
    held: dict[tuple[int, int], tuple[bool, bool, Send]] = field(default_factory=dict)


class InOrder:
    """Holds back what came too early; `limit` responses at most per turn."""

    def __init__(self, limit: int = 256) -> None:
        self.limit = limit
        self._turns: dict[str, _Turn] = {}

    def submit(
        self, turn: str, position: tuple[int, int], *, ends_piece: bool, ends_turn: bool, send: Send
    ) -> None:
        """Send at once if (piece, chunk) `position` is the next of `turn`, else when it is."""
        state = self._turns.setdefault(turn, _Turn())
        if position in state.held or position < state.next:
            raise ValueError(f"response {position} of turn {turn!r} was made twice")
        if position != state.next and len(state.held) >= self.limit:
            raise ValueError(f"turn {turn!r} holds back more than {self.limit} responses")
        state.held[position] = (ends_piece, ends_turn, send)
        while state.next in state.held:
            piece, chunk = state.next
            ends_piece, ends_turn, release = state.held.pop(state.next)
            state.next = (piece + 1, 0) if ends_piece else (piece, chunk + 1)
            if ends_turn:
                self._turns.pop(turn, None)
            release()

    def abandon(self, turn: str) -> list[Send]:
        """Forget a turn; returns what was held back, so that its requests can be answered."""
        state = self._turns.pop(turn, None)
        return [held[2] for _, held in sorted(state.held.items())] if state else []

    def check_integrity(self) -> None:
        """What may leave has left."""
        assert all(state.next not in state.held for state in self._turns.values())

    def __len__(self) -> int:
        return len(self._turns)
