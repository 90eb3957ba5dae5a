"""What probes of an orchestrator are answered with. Pure: told the time."""

import threading
from collections.abc import Mapping
from typing import Final

START_S: Final = 300.0
"""That a server may take to start, also when its keeper starts it again."""

DEAD_S: Final = 120.0
"""A stage that has answered nothing for so long is not alive: our own watchdog has not brought it
back, though large weights load."""

STARTED, READY, LIVE = "/started", "/ready", "/live"
PATHS: Final = (STARTED, READY, LIVE)


class Health:
    """Whether a server has started, may be given turns, or should be started again. Any thread may
    tell and ask it.

    `server_away`: why the server itself does not serve now; empty while it does. `start_s`: how
    long it may be away while its keeper starts it again.
    """

    def __init__(self, start_s: float = START_S) -> None:
        self.server_away = ""
        self.draining = False
        self._start_s = start_s
        self._down_since: float | None = None
        self._patience: Mapping[str, float] = {}
        self._answered_at: dict[str, float] = {}
        self._faults: dict[str, str] = {}
        self._started = False
        self._lock = threading.Lock()

    def started(self, patience: Mapping[str, float], now: float) -> None:
        """The server has started with these stages, each of which has answered. `patience`: for how
        many seconds each may be silent and be ready, whoever is to blame."""
        with self._lock:
            self._patience = dict(patience)
            self._answered_at = dict.fromkeys(patience, now)
            self._started = True

    def kept(self, now: float, *, serves: bool) -> None:
        """What its keeper says: the server serves, or is being started again. Stages of one that is
        back have answered, as at its first start."""
        with self._lock:
            if not serves:
                self._down_since = now if self._down_since is None else self._down_since
            elif self._down_since is not None:
                self._down_since = None
                self._answered_at = dict.fromkeys(self._patience, now)
                self._faults.clear()

    def heard(self, stage: str, fault: str, now: float) -> None:
        """A stage was asked; `fault`: what came instead of an answer, empty for an answer."""
        with self._lock:
            self._faults[stage] = fault
            if not fault:
                self._answered_at[stage] = now

    def why_not(self, path: str, now: float) -> list[str]:
        """Reasons why the answer to a probe is no; none: it is yes. KeyError for another path."""
        with self._lock:
            if path == STARTED:
                return [] if self._started else ["the server is starting"]
            if path == READY:
                return self._why_not_ready(now)
            if path == LIVE:
                return self._why_not_live(now)
        raise KeyError(path)

    def _why_not_ready(self, now: float) -> list[str]:
        if not self._started:
            return ["the server is starting"]
        if self.draining:
            return ["the server is being stopped"]
        if self.server_away:
            return [self.server_away]
        faulty = [f"stage {stage!r}: {fault}" for stage, fault in self._faults.items() if fault]
        return faulty or self._silent(self._patience, now)

    def _why_not_live(self, now: float) -> list[str]:
        if self._down_since is None:
            return self._silent(dict.fromkeys(self._patience, DEAD_S), now)
        down_s = now - self._down_since
        return [f"the server has been away for {down_s:.0f} s"] if down_s > self._start_s else []

    def _silent(self, most_s: Mapping[str, float], now: float) -> list[str]:
        return [
            f"stage {stage!r} has not answered for {now - self._answered_at[stage]:.1f} s"
            for stage, longest_s in most_s.items()
            if now - self._answered_at[stage] > longest_s
        ]
