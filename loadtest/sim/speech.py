"""Speaking by diffusion in virtual time: locked batches, then a vocoder."""

from collections import deque
from collections.abc import Callable
from functools import partial

from loadtest.sim.people import Talk
from loadtest.sim.stages import Place
from python_backends.scheduling.locked import LockedBatch

Piece = tuple[Talk, int]
Made = Callable[[Talk, int], None]


class Acoustic:
    """Pieces of one length share a batch, locked for the profile's steps; first pieces first."""

    def __init__(self, place: Place, then: Made, patience_s: float) -> None:
        self._stage = place.costs.profile.stages["acoustic"]
        self._place = place
        self._then = then
        self._lock: LockedBatch[float, Piece] = LockedBatch(
            max_batch=self._stage.max_batch, patience_s=patience_s
        )

    def send(self, talk: Talk, piece: int) -> None:
        """A piece arrives."""
        factor = self._stage.long_factor if piece else 1.0
        self._lock.add((talk, piece), factor, self._place.clock.now, later_piece=piece > 0)
        self._start()

    def _start(self) -> None:
        batch = self._lock.start(self._place.clock.now)
        if batch is not None:
            self._step(*batch, steps=1)

    def _step(self, factor: float, pieces: tuple[Piece, ...], steps: int) -> None:
        place = self._place
        cost_s = place.costs.pass_s("acoustic", len(pieces), factor)
        done = place.device.reserve(place.clock.now, "acoustic", len(pieces), cost_s)
        if steps < self._stage.steps:
            following = partial(self._step, factor, pieces, steps + 1)
            place.clock.at(done.end + place.wakeup_s, following)
        else:
            place.clock.at(done.end, partial(self._end, pieces))

    def _end(self, pieces: tuple[Piece, ...]) -> None:
        self._lock.finish()
        for talk, piece in pieces:
            self._then(talk, piece)
        self._place.clock.at(self._place.clock.now + self._place.wakeup_s, self._start)


class Vocoder:
    """Takes whatever waits, as many as fit into one pass."""

    def __init__(self, place: Place, then: Made) -> None:
        self._most = place.costs.profile.stages["vocoder"].max_batch
        self._place = place
        self._then = then
        self._waiting: deque[Piece] = deque()
        self._busy = False

    def send(self, talk: Talk, piece: int) -> None:
        """A piece arrives."""
        self._waiting.append((talk, piece))
        self._place.clock.at(self._place.clock.now, self._start)

    def _start(self) -> None:
        if self._busy or not self._waiting:
            return
        self._busy = True
        size = min(self._most, len(self._waiting))
        pieces = [self._waiting.popleft() for _ in range(size)]
        place = self._place
        cost_s = place.costs.pass_s("vocoder", size)
        done = place.device.reserve(place.clock.now, "vocoder", size, cost_s)
        place.clock.at(done.end, partial(self._end, pieces))

    def _end(self, pieces: list[Piece]) -> None:
        self._busy = False
        for talk, piece in pieces:
            self._then(talk, piece)
        self._start()
