"""Servers that people call: one on the emulated device, and one with real weights."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.progress import Progress

from deploy.figures import read_metrics, rows
from deploy.launcher import Server
from deploy.settings import REPOSITORIES, Settings
from loadtest.apart.stand import emulating
from loadtest.device import Emulation
from loadtest.live.people import Script, Stop, talk
from loadtest.live.record import Record
from loadtest.live.server_side import Chunks
from loadtest.live.sounds import samples
from loadtest.seed.experiment import EMULATED

EMULATED_MODEL, REAL_MODEL = "emu_live", "live"
TOLD_S = 1.0
"""Figures are told more often than that."""


@dataclass(frozen=True)
class Stand:
    """A running server; `emulation` is None on real weights."""

    server: Server
    model: str
    emulation: Emulation | None = None

    def talk(self, name: str, scripts: list[Script], progress: Progress) -> list[Record]:
        """What so many people have seen of it; a bar counts their answers."""
        total = sum(len(script.sounds) for script in scripts)
        task = progress.add_task(name, total=total, told="answers")
        address = self.server.grpc_address
        found = talk(address, self.model, scripts, lambda: progress.advance(task))
        progress.remove_task(task)
        return found

    def chunks(self) -> Chunks:
        """What it tells of them so far, once it has had the time to."""
        time.sleep(TOLD_S)
        return Chunks.of(rows(read_metrics(self.server.metrics_address)), self.model)

    def warm_up(self, progress: Progress) -> None:
        """One answer, broken off when it has begun: what is loaded late is loaded."""
        script = Script([min(samples(), key=len)], stops=[Stop("audio", 0.0)])
        self.talk("warming up", [script], progress)


@contextmanager
def emulated(progress: Progress) -> Iterator[Stand]:
    """The product's live calls in front of the emulated stages, which speak silence in the length
    of an answer; voice activity is the real model's."""
    with emulating() as file:
        emulation = replace(Emulation.read(file), sound=True)
        emulation.write(file)
        settings = Settings(
            repositories=[EMULATED, *REPOSITORIES], models=[EMULATED_MODEL], exit_timeout_s=2
        )
        with Server(settings) as server:
            stand = Stand(server, EMULATED_MODEL, emulation)
            stand.warm_up(progress)
            yield stand


@contextmanager
def real(progress: Progress) -> Iterator[Stand]:
    """The product as it is."""
    with Server(Settings(models=[REAL_MODEL], exit_timeout_s=2)) as server:
        stand = Stand(server, REAL_MODEL)
        stand.warm_up(progress)
        yield stand


def device_of(stand: Stand) -> Path:
    """The file of the device that all its stages compute on; ValueError on real weights."""
    if stand.emulation is None:
        raise ValueError("real weights have no device file")
    return Path(stand.emulation.devices["think"])
