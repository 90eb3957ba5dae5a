"""One request of the acoustic stage: a piece of a turn."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.bridge import Request
from python_backends.diffusion_lock.chunks import VocoderInput, plan
from python_backends.diffusion_lock.score import Key, Score
from python_backends.errors import InvalidInput, StageError
from python_backends.pieces import LAST_CHUNK, LAST_PIECE, NO_SOUND

PASSED_THROUGH = ("TEXT", "HEARD", "STATUS")


@dataclass(eq=False)
class Piece:
    """Made of PIECE (number, chunk, flags); without PIECE it is a turn of its own."""

    request: Request
    number: int
    flags: int
    score: Score | None = None
    key: Key | None = None
    error: StageError | None = None
    """Why it will not be answered with sound."""

    frames: NDArray[np.float32] | None = None
    """[T, 66], once decoded."""

    queued_s: float = 0.0
    """Since when it has waited to be decoded."""

    began_s: float = 0.0
    """When it was begun, or gone on with after a pause."""

    rested_s: float | None = None
    """Since when it has paused, or been decoded."""

    computed_s: float = 0.0
    """How long it was computed, pauses left out."""

    company: int = 0
    """The most members that shared a call with it, itself included."""

    made_s: float | None = None
    """When its sound was ready to leave."""

    spans: list[bytes] = field(default_factory=list)

    @classmethod
    def of(cls, request: Request) -> "Piece":
        """Raises InvalidInput for a PIECE that cannot be."""
        place = request.optional("PIECE")
        if place is None:
            return cls(request, 0, LAST_PIECE)
        number, _, flags = (int(value) for value in place.reshape(-1))
        if number < 0 or flags < 0:
            raise InvalidInput(f"PIECE is {place.reshape(-1).tolist()}; nothing of it is negative")
        return cls(request, number, flags & ~LAST_CHUNK)

    @property
    def turn(self) -> str:
        return self.request.turn

    @property
    def seed(self) -> int:
        """Of its noise."""
        return self.request.options.seed

    @property
    def is_last(self) -> bool:
        """No piece of the turn follows."""
        return bool(self.flags & LAST_PIECE)

    @property
    def is_alone(self) -> bool:
        """It waits for no other: it is the whole turn, or somebody else keeps the order."""
        return not self.request.options.ordered or (self.number == 0 and self.is_last)

    @property
    def has_sound(self) -> bool:
        """There is something to say."""
        return not self.flags & NO_SOUND and self.request.text("TEXT", "?").strip() != ""

    def note(self, what: str, start_s: float, end_s: float, **more: Any) -> None:
        """Add a span to EVENTS."""
        span = self.request.span(
            what, int(start_s * 1e9), int(end_s * 1e9), piece=self.number, **more
        )
        self.spans.append(span)

    def begin(self, now: float, members: int) -> None:
        """Its first call, or the first one after a pause, is made together with others."""
        assert self.key is not None
        since_s = self.request.arrived_ns / 1e9 if self.rested_s is None else self.rested_s
        self.note("queue", since_s, now, members=members, frames=self.key.frames)
        self.began_s = now

    def rest(self, now: float) -> None:
        """Its last call, or the last one before a pause, has been made."""
        assert self.key is not None
        about = {"members": self.company, "steps": self.key.steps, "solver": self.key.solver}
        self.note("compute", self.began_s, now, **about)
        self.computed_s += now - self.began_s
        self.rested_s = now

    def responses(self, source: VocoderInput) -> Iterator[dict[str, NDArray[Any]]]:
        """One response a chunk."""
        chunks = plan(source.frames, stream=self.request.options.stream)
        carried = self._carried()
        for chunk, (start, stop) in enumerate(chunks):
            flags = self.flags | (LAST_CHUNK if chunk == len(chunks) - 1 else 0)
            place = np.array([[self.number, chunk, flags]], np.int32)
            yield {"PIECE": place, **carried, **source.chunk(start, stop)}

    def _carried(self) -> dict[str, NDArray[Any]]:
        nothing = np.array([[b""]], np.object_)
        carried = {name: self.request.optional(name) for name in PASSED_THROUGH}
        filled = {name: nothing if value is None else value for name, value in carried.items()}
        return {**filled, "EVENTS": self.request.with_events(*self.spans)}
