"""Behind `python -m deploy bytes`: what models declare beside what their processes take.

Of a process the most private pages that it ever had count (USS), and its own region of shared
memory; what it shares with others, as libraries are, counts to nobody.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from rich.table import Table

from deploy import runs
from deploy.budget import SERVER_BYTES, TRITONSERVER, declared_of
from deploy.launcher import Server
from deploy.load import largest, send
from deploy.memory import private_bytes, region_bytes
from deploy.processes import servers_naming
from deploy.repositories import Model, read_models
from deploy.stubs import stubs
from python_backends.declared import Declared

LEAST: Final = 0.7
MOST: Final = 1.0
LOOK_S: Final = 0.5


@dataclass(frozen=True)
class Row:
    """One process."""

    name: str
    declared: Declared
    measured: int

    @property
    def ratio(self) -> float:
        """Measured by declared."""
        return self.measured / self.declared.total

    @property
    def fits(self) -> bool:
        """It takes what was declared, and not much less. Of the server itself, which is no stage,
        nothing is known of the least."""
        return (self.name == TRITONSERVER or self.ratio >= LEAST) and self.ratio <= MOST

    def as_json(self) -> dict[str, Any]:
        """Bytes."""
        return {
            "declared": self.declared.parts,
            "declared_total": self.declared.total,
            "measured": self.measured,
            "measured_by_declared": self.ratio,
        }


@dataclass
class Watch:
    """The most that each process of a server has been seen to take."""

    pid: int
    models: Mapping[str, Model]
    prefix: str
    peaks: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """Once more. A process that has taken another one's place counts as the same."""
        for stub in stubs(self.pid, list(self.models)):
            self._note(stub.model, private_bytes(stub.pid) + region_bytes(stub.pid, self.prefix))
        self._note(TRITONSERVER, private_bytes(self.pid))

    def rows(self) -> list[Row]:
        """Of models that declare something, and of the server itself."""
        found = [
            Row(name, declared, self.peaks[name])
            for name, model in self.models.items()
            if name in self.peaks and (declared := declared_of(model)) is not None
        ]
        return [*found, Row(TRITONSERVER, Declared(process=SERVER_BYTES), self.peaks[TRITONSERVER])]

    def _note(self, name: str, nbytes: int) -> None:
        self.peaks[name] = max(nbytes, self.peaks.get(name, 0))


@contextmanager
def watch(server: Server) -> Iterator[Watch]:
    """Looks again and again, on a thread of its own."""
    models = {name: server.model(name) for name in server.models}
    watched = Watch(server.pid, models, server.shared_memory_prefix)
    over = threading.Event()

    def run() -> None:
        while not over.wait(LOOK_S):
            watched.look()

    watched.look()
    thread = threading.Thread(target=run, name="bytes")
    thread.start()
    try:
        yield watched
    finally:
        over.set()
        thread.join()


def under_load(server: Server) -> list[Row]:
    """What its processes take at most while every stage does the largest things that it may."""
    with watch(server) as watched:
        for requests in largest(server.models):
            send(server, requests)
    return watched.rows()


def as_they_are(out: Path) -> dict[str, list[Row]]:
    """What the servers that run below `out` take now, by the names of their runs."""
    found = {}
    for run, prefix in runs.alive(out):
        for pid in servers_naming(prefix):
            words = _command(pid)
            if words and os.path.basename(words[0]) == TRITONSERVER:
                watched = Watch(pid, _models_of(run, words), prefix)
                watched.look()
                found[run.name] = watched.rows()
    return found


def _command(pid: int) -> list[str]:
    """Nothing of a process that has ended."""
    try:
        return list(psutil.Process(pid).cmdline())
    except psutil.Error:
        return []


def _models_of(run: Path, words: Sequence[str]) -> dict[str, Model]:
    """As a server with this run directory and command line has loaded them."""
    named = [word.partition("=")[2] for word in words if word.startswith("--model-config-name=")]
    return read_models(sorted((run / "repositories").iterdir()), {}, next(iter(named), None))


def table(rows: list[Row]) -> Table:
    """Stage by stage: what is declared, part by part, and what was measured."""
    columns = ("MiB", *Declared().parts, "declared", "measured", "ratio")
    found = Table(box=None, pad_edge=False)
    for column in columns:
        found.add_column(column, justify="left" if column == "MiB" else "right")
    for row in rows:
        sizes = [*row.declared.parts.values(), row.declared.total, row.measured]
        style = "green" if row.fits else "red"
        found.add_row(row.name, *map(_mib, sizes), f"[{style}]{row.ratio:.2f}[/{style}]")
    return found


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.0f}" if nbytes else "-"
