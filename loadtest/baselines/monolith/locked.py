"""The rule of profile-diffusion.json. Pure.

"One rule for all, the intersection: same shape and steps to share a batch, locked to the end,
everyone waits for the longest step."

Read as the same loop as in `steps`, with every kind of compute under the rule that the strictest of
them, diffusion, needs:

* *same shape and steps*: a batch holds one shape of sound (listen, think) or of piece (acoustic,
  vocoder), and all its members make the same number of steps: 40 of thinking, 8 of diffusion.
* *locked to the end*: a think batch that has started makes its 40 steps with the members it started
  with; newcomers wait, encoded, until it has ended, and so with an acoustic batch and its 8 steps.
  Who has left is computed to the end with the others.
* *everyone waits for the longest step*: a round is at most one admission, one think step of the
  think batch, one step of the acoustic batch and, when that was its last, its vocoder pass: so
  thinking advances at the pace of diffusion steps.

In its favour: any number of turns may share a think batch, thinking goes on while earlier pieces
are spoken (a stricter reading would lock a whole turn from its encoder pass to its last sound), and
a finished acoustic batch is heard in the same round. There is no rule of its own for first pieces:
pieces are served first come, first served, those of the head's shape coming along.
"""

from collections import deque
from dataclasses import dataclass

from loadtest.baselines.monolith.room import Limits, Room
from loadtest.baselines.monolith.turns import Chunk, Row, Turn, Work, rows
from loadtest.device.profile import Profile
from python_backends.pieces import LAST_CHUNK, LAST_PIECE


@dataclass(frozen=True)
class DiffusionScript:
    """What every turn does: a piece is known after each of `steps_per_piece` think steps, and is
    spoken by `acoustic_steps` steps and a vocoder pass; pieces after the first are longer."""

    steps_per_piece: tuple[int, ...]
    acoustic_steps: int
    acoustic_batch: int
    long_factor: float
    audio_ms_per_piece: float

    @classmethod
    def of(cls, profile: Profile, think: tuple[int, ...]) -> "DiffusionScript":
        """A diffusion profile's turn."""
        acoustic = profile.stages["acoustic"]
        return cls(
            steps_per_piece=think,
            acoustic_steps=acoustic.steps,
            acoustic_batch=acoustic.max_batch,
            long_factor=acoustic.long_factor,
            audio_ms_per_piece=acoustic.audio_ms_per_piece,
        )

    @property
    def think_steps(self) -> int:
        return sum(self.steps_per_piece)

    @property
    def pieces(self) -> int:
        return len(self.steps_per_piece)

    def piece_after(self, thought: int) -> int | None:
        """The piece that is complete after exactly `thought` think steps."""
        ends = [sum(self.steps_per_piece[: piece + 1]) for piece in range(self.pieces)]
        return ends.index(thought) if thought in ends else None

    def factor(self, piece: int) -> float:
        """Cost of a piece's acoustic step, relative to the first piece's; also its shape."""
        return self.long_factor if piece else 1.0


@dataclass
class _Batch:
    rows: tuple[Row, ...]
    steps: int = 0

    @property
    def deserted(self) -> bool:
        return all(row.turn.gone for row in self.rows)


class LockedRule:
    """Locked batches for everything, one step of each a round."""

    def __init__(self, script: DiffusionScript, limits: Limits) -> None:
        self._script = script
        self._room = Room(limits)
        self._encoded: deque[Turn] = deque()
        self._thinking: _Batch | None = None
        self._pieces: deque[Row] = deque()
        self._acoustic: _Batch | None = None

    def join(self, turn: Turn) -> None:
        """Queue a turn."""
        self._room.waiting.append(turn)

    def leave(self, turn: Turn) -> None:
        """Take a turn out between two rounds; locked batches keep its row to their end."""
        turn.gone = True
        self._room.leave(turn)
        self._encoded = deque(one for one in self._encoded if one is not turn)
        self._pieces = deque(row for row in self._pieces if row.turn is not turn)

    def plan(self) -> tuple[Work, ...]:
        """Encoder passes, a step of each locked batch, the vocoder after a last step."""
        self._forget_deserted()
        works = self._room.admit()
        for work in works:
            self._encoded += [row.turn for row in work.rows]
        if self._thinking is None and self._encoded:
            self._thinking = self._lock_thinking()
        if self._thinking is not None:
            works.append(Work("think", self._thinking.rows))
        if self._acoustic is None and self._pieces:
            self._acoustic = self._lock_acoustic()
        if self._acoustic is not None:
            works += self._acoustic_step(self._acoustic)
        return tuple(works)

    def commit(self, works: tuple[Work, ...]) -> list[Chunk]:
        """Every batch has made its step; what was thought is queued, what was vocoded is sent."""
        chunks = []
        for work in works:
            match work.stage:
                case "think":
                    self._thought(work.rows)
                case "acoustic":
                    self._refined()
                case "vocoder":
                    chunks += [chunk for row in work.rows for chunk in self._spoken(row)]
        return chunks

    def turns(self) -> list[Turn]:
        """Everybody running or waiting."""
        return self._room.turns()

    @property
    def waiting(self) -> int:
        """Turns not admitted yet."""
        return len(self._room.waiting)

    def check_integrity(self) -> None:
        """Whoever waits for a batch runs, and no batch is longer than its steps."""
        self._room.check_integrity()
        running = set(map(id, self._room.running))
        assert all(id(turn) in running for turn in self._encoded)
        assert all(id(row.turn) in running for row in self._pieces)
        script = self._script
        assert self._thinking is None or self._thinking.steps < script.think_steps
        assert self._acoustic is None or self._acoustic.steps < script.acoustic_steps
        assert self._acoustic is None or len(self._acoustic.rows) <= script.acoustic_batch

    def _forget_deserted(self) -> None:
        """A batch ends early only when all its members have left."""
        if self._thinking is not None and self._thinking.deserted:
            self._thinking = None
        if self._acoustic is not None and self._acoustic.deserted:
            self._acoustic = None

    def _lock_thinking(self) -> _Batch:
        bucket = self._encoded[0].bucket
        chosen = [turn for turn in self._encoded if turn.bucket == bucket]
        self._encoded = deque(turn for turn in self._encoded if turn.bucket != bucket)
        return _Batch(rows(chosen))

    def _lock_acoustic(self) -> _Batch:
        """The head's shape decides; no piece overtakes an earlier one of its turn."""
        shape = self._script.factor(self._pieces[0].piece)
        chosen: list[Row] = []
        left: deque[Row] = deque()
        for row in self._pieces:
            room = len(chosen) < self._script.acoustic_batch
            overtakes = any(other.turn is row.turn for other in left)
            fits = room and not overtakes and self._script.factor(row.piece) == shape
            (chosen if fits else left).append(row)
        self._pieces = left
        return _Batch(tuple(chosen))

    def _acoustic_step(self, batch: _Batch) -> list[Work]:
        works = [Work("acoustic", batch.rows, self._script.factor(batch.rows[0].piece))]
        if batch.steps == self._script.acoustic_steps - 1:
            works.append(Work("vocoder", batch.rows))
        return works

    def _thought(self, thinking: tuple[Row, ...]) -> None:
        assert self._thinking is not None
        self._thinking.steps += 1
        piece = self._script.piece_after(self._thinking.steps)
        for row in thinking:
            row.turn.thought += 1
            if piece is not None and not row.turn.gone:
                self._pieces.append(Row(row.turn, piece))
        if self._thinking.steps == self._script.think_steps:
            self._thinking = None

    def _refined(self) -> None:
        assert self._acoustic is not None
        self._acoustic.steps += 1
        if self._acoustic.steps == self._script.acoustic_steps:
            self._acoustic = None

    def _spoken(self, row: Row) -> list[Chunk]:
        """A piece is one chunk; pieces of a turn are spoken in their order, as they were queued."""
        turn, script = row.turn, self._script
        turn.spoken += 1
        ends_turn = turn.spoken == script.pieces
        if ends_turn:
            self._room.leave(turn)
        if turn.gone or (turn.whole and not ends_turn):
            return []
        if turn.whole:
            audio_ms = script.pieces * script.audio_ms_per_piece
            return [Chunk(turn, 0, 0, LAST_CHUNK | LAST_PIECE, audio_ms)]
        flags = LAST_CHUNK | (LAST_PIECE if ends_turn else 0)
        return [Chunk(turn, row.piece, 0, flags, script.audio_ms_per_piece)]
