"""What probes of an orchestrator are answered with. Pure: told the time."""

from collections.abc import Iterable
from typing import Final

SILENT_S: Final = 5.0
"""A stage that has answered nothing for so long is not ready, whoever is to blame."""

DEAD_S: Final = 120.0
"""Nor alive after so long: our own watchdog has not brought it back, though large weights load."""

STARTED, READY, LIVE = "/started", "/ready", "/live"
PATHS: Final = (STARTED, READY, LIVE)


class Health:
    """Whether a server has started, may be given turns, or should be started again.

    `server_away`: why the server itself does not serve now; empty while it does.
    """

    def __init__(self) -> None:
        self.server_away = ""
        self.draining = False
        self._answered_at: dict[str, float] = {}
        self._faults: dict[str, str] = {}
        self._started = False

    def started(self, stages: Iterable[str], now: float) -> None:
        """The server has started with these stages, each of which has answered."""
        self._answered_at = dict.fromkeys(stages, now)
        self._started = True

    def heard(self, stage: str, fault: str, now: float) -> None:
        """A stage was asked; `fault`: what came instead of an answer, empty for an answer."""
        self._faults[stage] = fault
        if not fault:
            self._answered_at[stage] = now

    def why_not(self, path: str, now: float) -> list[str]:
        """Reasons why the answer to a probe is no; none: it is yes. KeyError for another path."""
        if path == STARTED:
            return [] if self._started else ["the server is starting"]
        if path == READY:
            return self._why_not_ready(now)
        if path == LIVE:
            return self._silent(DEAD_S, now)
        raise KeyError(path)

    def _why_not_ready(self, now: float) -> list[str]:
        if not self._started:
            return ["the server is starting"]
        if self.draining:
            return ["the server is being stopped"]
        if self.server_away:
            return [self.server_away]
        faulty = [f"stage {stage!r}: {fault}" for stage, fault in self._faults.items() if fault]
        return faulty or self._silent(SILENT_S, now)

    def _silent(self, most_s: float, now: float) -> list[str]:
        return [
            f"stage {stage!r} has not answered for {now - answered:.1f} s"
            for stage, answered in self._answered_at.items()
            if now - answered > most_s
        ]
