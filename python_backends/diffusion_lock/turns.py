"""Pieces of one turn leave in order, whatever order they were made in."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from python_backends.diffusion_lock.piece import Piece
from python_backends.errors import Cancelled, InvalidInput
from python_backends.scheduling.order import InOrder

KEPT_TURNS = 1024
"""Turns remembered between two of their pieces."""


@dataclass
class _Turn:
    open: dict[int, Piece] = field(default_factory=dict)
    left: int = 0
    """Pieces that have left; the next one has this number."""

    last: int | None = None
    """Number of the last piece, once known."""

    broken: bool = False

    @property
    def next_open(self) -> Piece | None:
        """The open piece with the lowest number."""
        return self.open[min(self.open)] if self.open else None


class Turns:
    """Who is open in turns of several pieces; a piece that is a whole turn passes untouched."""

    def __init__(self, *, limit: int, hold_s: float) -> None:
        self._hold_s = hold_s
        self._order = InOrder(limit)
        self._turns: OrderedDict[str, _Turn] = OrderedDict()

    def enter(self, piece: Piece) -> None:
        """Expect `piece`. Raises Cancelled when its turn has failed, InvalidInput out of place."""
        if piece.is_alone:
            return
        turn = self._turns.get(piece.turn, _Turn())
        if piece.number == 0 and not turn.open:
            self._order.abandon(piece.turn)
            turn = _Turn()
        if turn.broken:
            raise Cancelled("another piece of the turn failed or was cancelled")
        last = piece.number if piece.is_last else turn.last
        self._check(piece, turn, last)
        turn.open[piece.number], turn.last = piece, last
        self._keep(piece.turn, turn)

    def submit(self, piece: Piece, now: float, send: Callable[[], None]) -> None:
        """Send now, if every earlier piece of the turn has left, else when it has."""
        piece.made_s = now
        if piece.is_alone:
            send()
            return
        self._order.submit(
            piece.turn,
            (piece.number, 0),
            ends_piece=True,
            ends_turn=piece.is_last,
            send=lambda: self._leave(piece, send),
        )

    def abandon(self, turn_id: str) -> None:
        """Hold nothing back for this turn, and refuse what still comes of it."""
        self._order.abandon(turn_id)
        self._keep(turn_id, _Turn(broken=True))

    def next_deadline(self) -> float | None:
        """When a piece will have been held for long enough, in vain; None when none is held."""
        return min(map(self._until, self._held()), default=None)

    def stuck(self, now: float) -> list[Piece]:
        """Pieces that were held for long enough for one that has never arrived."""
        return [piece for piece in self._held() if self._until(piece) <= now]

    def check_integrity(self) -> None:
        """Nothing that could leave is held, and the memory of turns is bounded."""
        self._order.check_integrity()
        idle = sum(not turn.open for turn in self._turns.values())
        assert idle <= KEPT_TURNS

    def _check(self, piece: Piece, turn: _Turn, last: int | None) -> None:
        if piece.number in turn.open or piece.number < turn.left:
            raise InvalidInput(f"piece {piece.number} of the turn has been given before")
        if last is not None and max([*turn.open, piece.number]) > last:
            raise InvalidInput(f"piece {last} is the last of the turn, and others lie behind it")

    def _held(self) -> list[Piece]:
        """First open pieces of their turns that are made: they wait for what is not here."""
        firsts = [turn.next_open for turn in self._turns.values()]
        return [piece for piece in firsts if piece is not None and piece.made_s is not None]

    def _until(self, piece: Piece) -> float:
        assert piece.made_s is not None
        return piece.made_s + self._hold_s

    def _leave(self, piece: Piece, send: Callable[[], None]) -> None:
        turn = self._turns[piece.turn]
        turn.open.pop(piece.number)
        turn.left = piece.number + 1
        if piece.is_last:
            self._turns.pop(piece.turn)
        send()

    def _keep(self, turn_id: str, turn: _Turn) -> None:
        self._turns[turn_id] = turn
        self._turns.move_to_end(turn_id)
        if len(self._turns) <= KEPT_TURNS:
            return
        idle = [name for name, known in self._turns.items() if not known.open]
        for name in idle[:-KEPT_TURNS]:
            self._turns.pop(name)
            self._order.abandon(name)
