"""A loudspeaker that plays in real time without anybody waking up for it."""

import time
from collections.abc import Callable
from typing import Any

from client.live import LiveEvent, Playback
from client.live.converse import SLICE_S

NS_PER_S = 1_000_000_000


class Loudspeaker(Playback):
    """Before anything changes, it takes what it would have taken until now, slice by slice: between
    two changes nobody can tell the difference, and 64 of them cost no timers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._began_s = clock()
        self._taken = 0
        self.last_ns: dict[str, int] = {}
        """Turn -> when the last of its sound was over, so far."""

    def take(self, event: LiveEvent) -> None:
        """See Playback."""
        self.catch_up()
        super().take(event)

    def report(self) -> dict[str, Any] | None:
        """See Playback."""
        self.catch_up()
        return super().report()

    @property
    def is_playing(self) -> bool:
        """See Playback."""
        self.catch_up()
        return super().is_playing

    def catch_up(self) -> None:
        """Play up to now."""
        now_s = self._clock()
        while (start_s := self._began_s + self._taken * SLICE_S) <= now_s:
            before_ms = self.played_ms
            self.read(round(SLICE_S * self.rate_hz))
            self._taken += 1
            if heard_ms := self.played_ms - before_ms:
                self.last_ns[self.turn] = round((start_s + heard_ms / 1000) * NS_PER_S)
