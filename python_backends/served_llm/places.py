"""So many are served at once, so many wait, and nobody else is let in."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Final

from python_backends.errors import Overloaded
from python_backends.scheduling.fair import FairQueue

FIRST_GUESS_S: Final = 1.0
SMOOTHING: Final = 0.2
"""Weight of the newest measurement."""


class Places:
    """For the tasks of one event loop. Owners take turns: see FairQueue. `tell` is called with how
    many have a place, and how many wait, whenever that changes."""

    def __init__(
        self,
        most: int,
        most_waiting: int,
        clock: Callable[[], float],
        tell: Callable[[int, int], None] = lambda taken, waiting: None,
    ) -> None:
        self.most = most
        self.taken = 0
        self._most_waiting = most_waiting
        self._clock = clock
        self._tell = tell
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._took_s = FIRST_GUESS_S

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def one(self, owner: Hashable) -> AsyncIterator[None]:
        """A place, as soon as there is one; Overloaded when too many wait for it."""
        try:
            await self._take(owner)
        finally:
            self._tell(self.taken, self.waiting)
        began_s = self._clock()
        try:
            yield
            self._took_s += SMOOTHING * (self._clock() - began_s - self._took_s)
        finally:
            self._give()
            self._tell(self.taken, self.waiting)

    async def _take(self, owner: Hashable) -> None:
        if self.taken < self.most:
            self.taken += 1
            return
        if self.waiting >= self._most_waiting:
            raise Overloaded(
                f"{self.waiting} requests wait for the LLM; at most {self._most_waiting} may",
                reason="queue",
                retry_after_ms=max(1, round(1000 * self._took_s * (1 + self.waiting) / self.most)),
            )
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn, owner)
        self._tell(self.taken, self.waiting)
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.remove(turn)
            if not turn.cancelled():  # it had just been given
                self._give()
            raise

    def _give(self) -> None:
        """To whoever is next; those who are cancelled take none."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.taken -= 1

    def check_integrity(self) -> None:
        """Nobody waits for a place that is free."""
        assert 0 <= self.taken <= self.most
        assert self.taken == self.most or not self.waiting
        self._waiting.check_integrity()
