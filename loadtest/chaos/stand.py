"""An emulated server with the front door, kept alive, and what it shows of itself."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from deploy.errors import ServerFailed
from deploy.figures import Row, read_metrics, rows
from deploy.keeper import keeping
from deploy.launcher import Server
from deploy.processes import SHARED_MEMORY
from deploy.settings import Settings
from loadtest.apart.stand import emulating
from loadtest.chaos.caller import DOOR
from loadtest.seed.experiment import EMULATED

STAGES = ("emu_listen", "emu_think", "emu_speak")
LEVELS = ("tristage_open_requests", "tristage_slots")
SETTLE_S = 5.0
LOOK_S = 0.05
AWAY_S = 60.0
REMEMBERED_S = 65.0
"""A cancelled turn is remembered for a minute, and that it is forgotten told a little later."""


@dataclass
class Stand:
    """A running server; `news` is what its keeper told, each with its time.monotonic_ns."""

    server: Server
    news: list[tuple[int, str, str]] = field(default_factory=list)
    absences: list[tuple[int, int]] = field(default_factory=list)
    """From when the server itself had ended until it served again: a killed stage may take it
    along, see deploy.keeper. On time.monotonic_ns."""

    down_since: int | None = None

    @property
    def address(self) -> str:
        return self.server.grpc_address

    def rows(self) -> list[Row]:
        """Of /metrics."""
        return rows(read_metrics(self.server.metrics_address))

    def leaks(self) -> dict[str, float]:
        """What is still open, running or waiting; empty when nothing is."""
        found: dict[str, float] = {}
        for row in self.rows():
            if row.name in LEVELS and row.labels.get("state") != "free" and row.value:
                found[f"{row.name} {row.stage} {row.labels.get('state', '')}".strip()] = row.value
        return found

    def leaks_at_rest(self) -> dict[str, float]:
        """The same once everything has had time to end."""
        deadline = time.monotonic() + SETTLE_S
        while (found := self.leaks()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def dead_turns_at_last(self) -> dict[str, float]:
        """Cancelled turns that a stage still remembers after they should be forgotten."""
        deadline = time.monotonic() + REMEMBERED_S
        while (found := self._dead_turns()) and time.monotonic() < deadline:
            time.sleep(1.0)
        return found

    def _dead_turns(self) -> dict[str, float]:
        return {
            row.stage: row.value
            for row in self.rows()
            if row.name == "tristage_dead_turns" and row.value
        }

    def rss_bytes(self) -> int:
        """Of the server and its stubs, without files that are mapped: what the emulated device
        writes down of its passes grows in each process that writes, and is no part of a server."""
        server = psutil.Process(self.server.pid)
        sizes = [one.memory_info() for one in [server, *server.children(recursive=True)]]
        return sum(one.rss - one.shared for one in sizes)

    def shm_bytes(self) -> int:
        """What its regions take in /dev/shm."""
        prefix = self.server.shared_memory_prefix
        regions = [one for one in SHARED_MEMORY.iterdir() if one.name.startswith(prefix)]
        return sum(one.stat().st_blocks * 512 for one in regions)

    def hear(self, kind: str, what: str) -> None:
        """What the keeper tells."""
        now = time.monotonic_ns()
        self.news.append((now, kind, what))
        if kind == "down":
            self.down_since = now
        if kind == "back" and self.down_since is not None:
            self.absences.append((self.down_since, now))
            self.down_since = None

    async def be_there(self) -> None:
        """Wait until there is a server; ServerFailed when it stays away."""
        deadline = time.monotonic() + AWAY_S
        while self.down_since is not None or not self.server.alive:
            if time.monotonic() > deadline:
                raise ServerFailed(f"the server has been away for {AWAY_S:.0f} s")
            await asyncio.sleep(LOOK_S)

    def failures(self) -> list[str]:
        """What the keeper could not do."""
        return [what for _, kind, what in self.news if kind == "failed"]


@contextmanager
def standing(out: Path) -> Iterator[Stand]:
    """All of it ends with the block."""
    settings = Settings(repositories=[EMULATED], models=[DOOR], out=out, exit_timeout_s=2)
    with emulating(), Server(settings) as server:
        stand = Stand(server)
        with keeping(server, stand.hear):
            yield stand
