"""What a rule schedules: turns, passes of the device, chunks. Pure."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from python_backends.pieces import LAST_CHUNK, LAST_PIECE


@dataclass(eq=False)
class Turn:
    """One person's turn, and how far it has come. `payload` is the caller's."""

    payload: Any
    bucket: Hashable = 0
    """Shape of its sound: only turns of one bucket share an encoder pass."""

    whole: bool = False
    """Nothing is sent before everything is spoken."""

    thought: int = 0
    spoken: int = 0
    """Steps done; of a diffusion answer, pieces."""

    gone: bool = False
    """Its caller has left."""


@dataclass(frozen=True)
class Row:
    """One member of a pass: a turn, and the piece of its answer that is being made."""

    turn: Turn
    piece: int = 0


@dataclass(frozen=True)
class Work:
    """One pass of the device. `factor` scales the stage's cost."""

    stage: str
    rows: tuple[Row, ...]
    factor: float = 1.0


@dataclass(frozen=True)
class Chunk:
    """Some sound of a turn, ready to be sent. `flags` as in python_backends.pieces."""

    turn: Turn
    piece: int
    number: int
    flags: int
    audio_ms: float

    @property
    def ends_turn(self) -> bool:
        return self.flags == LAST_CHUNK | LAST_PIECE


class Rule(Protocol):
    """One loop's way to schedule everything. Rounds are planned, run, committed."""

    def join(self, turn: Turn) -> None:
        """Queue a turn."""

    def leave(self, turn: Turn) -> None:
        """Take a turn out between two rounds; unknown ones are ignored."""

    def plan(self) -> tuple[Work, ...]:
        """The passes of the next round, in their order; none when nobody is here."""

    def commit(self, works: tuple[Work, ...]) -> list[Chunk]:
        """Account for a round that has run; finished turns have left."""

    def turns(self) -> list[Turn]:
        """Everybody running or waiting."""

    @property
    def waiting(self) -> int:
        """Turns not admitted yet."""

    def check_integrity(self) -> None:
        """Nobody is in two places, and no limit is exceeded."""


def rows(turns: list[Turn]) -> tuple[Row, ...]:
    """Members of a pass that makes no particular piece."""
    return tuple(map(Row, turns))


def members(works: tuple[Work, ...]) -> int:
    """Different turns that a round works for."""
    return len({id(row.turn) for work in works for row in work.rows})
