"""Turns that were cancelled, remembered for as long as stragglers may still arrive."""

import time
from collections import OrderedDict
from collections.abc import Callable

KEEP_S = 60.0
LIMIT = 4096


class DeadTurns:
    """A bounded set of turn ids whose members expire. For one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: OrderedDict[str, float] = OrderedDict()

    def add(self, turn: str) -> None:
        """Remember a cancelled turn; those who have expired, or are too many, are forgotten."""
        self._until[turn] = self._clock() + KEEP_S
        self._until.move_to_end(turn)
        self._forget()

    def __contains__(self, turn: object) -> bool:
        until = self._until.get(turn) if isinstance(turn, str) else None
        return until is not None and until > self._clock()

    def __len__(self) -> int:
        self._forget()
        return len(self._until)

    def _forget(self) -> None:
        now = self._clock()
        while self._until:
            oldest = next(iter(self._until.values()), now)
            if len(self._until) <= LIMIT and oldest > now:
                return
            self._until.popitem(last=False)
