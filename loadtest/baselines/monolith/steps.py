"""The rule of profile.json. Pure.

"One loop: at most one admission (its encoder pass alone) per round, then one think step and one
speak step for everyone running."

Read as: a round is planned from who is where at its start. Whoever is admitted is encoded and
makes the first think step in the same round; whoever finishes thinking speaks from the next round
on. Steps of one kind are one pass for everybody: decoding is batched as well as in the stages.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from loadtest.baselines.monolith.room import Limits, Room
from loadtest.baselines.monolith.turns import Chunk, Row, Turn, Work, rows
from loadtest.device.emulation import even_parts
from loadtest.device.profile import Profile
from python_backends.pieces import LAST_CHUNK, LAST_PIECE


@dataclass(frozen=True)
class Script:
    """What every turn does: think and speak steps, by piece of the answer."""

    think: tuple[int, ...]
    speak: tuple[int, ...]
    steps_per_chunk: int
    audio_ms_per_step: float

    @classmethod
    def of(cls, profile: Profile, think: tuple[int, ...]) -> "Script":
        """A profile's turn; speak steps are shared evenly by the pieces, as in the stages."""
        speak = profile.stages["speak"]
        shares = even_parts(speak.steps, len(think))
        return cls(think, shares, speak.steps_per_chunk, speak.audio_ms_per_step)

    @cached_property
    def thought_at(self) -> tuple[int, ...]:
        """Think steps after which each piece is known."""
        return tuple(accumulate(self.think))

    @cached_property
    def spoken_at(self) -> tuple[int, ...]:
        """Speak steps after which each piece is spoken."""
        return tuple(accumulate(self.speak))

    def speakable(self, thought: int) -> int:
        """Speak steps that are known after `thought` think steps."""
        known = sum(end <= thought for end in self.thought_at)
        return self.spoken_at[known - 1] if known else 0

    def piece_of(self, spoken: int) -> int:
        """The piece that speak step number `spoken`, counted from 0, belongs to."""
        return sum(end <= spoken for end in self.spoken_at)


class StepRule:
    """One think step and one speak step a round, for everyone running."""

    def __init__(self, script: Script, limits: Limits) -> None:
        self._script = script
        self._room = Room(limits)

    def join(self, turn: Turn) -> None:
        """Queue a turn."""
        self._room.waiting.append(turn)

    def leave(self, turn: Turn) -> None:
        """Take a turn out between two rounds."""
        turn.gone = True
        self._room.leave(turn)

    def plan(self) -> tuple[Work, ...]:
        """Encoder passes, then a think step, then a speak step."""
        speaking = [turn for turn in self._room.running if self._can_speak(turn)]
        works = self._room.admit()
        thinking = [t for t in self._room.running if t.thought < self._script.thought_at[-1]]
        if thinking:
            works.append(Work("think", rows(thinking)))
        if speaking:
            spoken = tuple(Row(turn, self._script.piece_of(turn.spoken)) for turn in speaking)
            works.append(Work("speak", spoken))
        return tuple(works)

    def commit(self, works: tuple[Work, ...]) -> list[Chunk]:
        """Every member of a pass has made its step."""
        chunks = []
        for work in works:
            for row in work.rows:
                if work.stage == "think":
                    row.turn.thought += 1
                elif work.stage == "speak":
                    row.turn.spoken += 1
                    chunks += self._chunk(row)
        for chunk in chunks:
            if chunk.ends_turn:
                self._room.leave(chunk.turn)
        return chunks

    def turns(self) -> list[Turn]:
        """Everybody running or waiting."""
        return self._room.turns()

    @property
    def waiting(self) -> int:
        """Turns not admitted yet."""
        return len(self._room.waiting)

    def check_integrity(self) -> None:
        """Nobody speaks what was not thought, or beyond the end."""
        self._room.check_integrity()
        assert all(t.spoken <= self._script.speakable(t.thought) for t in self._room.running)
        assert all(t.spoken < self._script.spoken_at[-1] for t in self._room.running)
        assert all(t.thought == t.spoken == 0 for t in self._room.waiting)

    def _can_speak(self, turn: Turn) -> bool:
        return turn.spoken < self._script.speakable(turn.thought)

    def _chunk(self, row: Row) -> list[Chunk]:
        """The chunk that a speak step has completed, if it has."""
        script = self._script
        first = script.spoken_at[row.piece - 1] if row.piece else 0
        done, length = row.turn.spoken - first, script.spoken_at[row.piece] - first
        ends_piece = done == length
        if row.turn.gone or not (ends_piece or (done % script.steps_per_chunk == 0)):
            return []
        if row.turn.whole:
            return self._whole(row.turn)
        number, size = divmod(done - 1, script.steps_per_chunk)
        flags = ends_piece * LAST_CHUNK | (row.piece == len(script.speak) - 1) * LAST_PIECE
        return [Chunk(row.turn, row.piece, number, flags, (size + 1) * script.audio_ms_per_step)]

    def _whole(self, turn: Turn) -> list[Chunk]:
        if turn.spoken < self._script.spoken_at[-1]:
            return []
        audio_ms = turn.spoken * self._script.audio_ms_per_step
        return [Chunk(turn, 0, 0, LAST_CHUNK | LAST_PIECE, audio_ms)]
