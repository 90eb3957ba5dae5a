"""Every alert fires on its own fault, and on no other: faults put into real servers, one by one.

Each fault has a server of its own with emulated stages, and a Prometheus of its own under the
shipped rules. Their times are divided by FACTOR, since nobody waits six hours for a bench: what
holds for five minutes there holds for some seconds here. Faults that only slow down are given
turns that succeed, and stages die while nobody is inside, so that no alert has a second reason.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np
from rich.progress import Progress
from tritonclient.grpc import service_pb2_grpc

from deploy.keeper import keeping
from deploy.launcher import Server
from deploy.settings import Settings
from deploy.stubs import stubs
from loadtest.apart.stand import emulating
from loadtest.chaos.caller import DOOR, Caller, Told, crowd
from loadtest.device.emulation import Delays, Emulation
from loadtest.engine.figures import Found
from loadtest.operate.prometheus import Prometheus, scraping
from loadtest.seed.experiment import EMULATED
from loadtest.seed.figures import Target, at_least, at_most
from python_backends import wire

FACTOR: Final = 40
LEAK: Final = Path(__file__).parent / "leak"
LEAKY: Final = "leaky"
HEALTHY_S: Final = 25.0
PATIENCE_S: Final = 60.0
APART_S: Final = 0.15
AFTER_S: Final = 3.0
"""Others may yet fire."""

TARGETS: Final[dict[str, Target]] = {
    "alerts_fired_on_their_fault": at_least(1),
    "alerts_fired_on_others": at_most(0),
    "alerts_fired_when_healthy": at_most(0),
}


@dataclass
class Stand:
    """A server, and whether its keeper has had to start it again; `forget`: Prometheus is told of
    no server any more."""

    server: Server
    forget: Callable[[], None] = lambda: None
    news: list[str] = field(default_factory=list)

    def kill(self, model: str) -> None:
        """The process of a stage."""
        for stub in stubs(self.server.pid, [model]):
            os.kill(stub.pid, signal.SIGKILL)


Inject = Callable[[Stand], Awaitable[None]]
"""Does what goes wrong, until it is cancelled or has been done."""


@dataclass(frozen=True)
class Fault:
    """`fires`: all the alerts that it is to set off."""

    name: str
    fires: frozenset[str]
    inject: Inject
    emulation: Mapping[str, Any] = field(default_factory=dict)
    """What is changed of the emulated device."""

    kept: bool = False
    """A keeper brings the server and its stages back."""


def alerts(folder: Path, rounds: int, progress: Progress) -> Found:
    """The share of faults that set off all their alerts, and how many others fired."""
    task = progress.add_task("alerts", total=len(FAULTS) + 1, told="")
    told: dict[str, dict[str, Any]] = {}
    for fault in (HEALTHY, *FAULTS):
        progress.update(task, told=fault.name)
        fired, took_s = observed(fault, folder / "alerts" / fault.name.replace(" ", "-"))
        told[fault.name] = {
            "asked": sorted(fault.fires),
            "fired": sorted(fired),
            "after_s": round(took_s, 1),
        }
        progress.advance(task)
    return Found(figures(told), {"factor": FACTOR, "faults": told})


def figures(told: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """What is asked of them. Pure."""
    faults = {name: one for name, one in told.items() if name != HEALTHY.name}
    hit = sum(set(one["asked"]) <= set(one["fired"]) for one in faults.values())
    others = sum(len(set(one["fired"]) - set(one["asked"])) for one in faults.values())
    healthy = told.get(HEALTHY.name, {}).get("fired", ())
    return {
        "alerts_fired_on_their_fault": hit / max(1, len(faults)),
        "alerts_fired_on_others": float(others),
        "alerts_fired_when_healthy": float(len(healthy)),
        "alerts_faults": float(len(faults)),
    }


def observed(fault: Fault, folder: Path) -> tuple[set[str], float]:
    """The alerts that fire under a fault, and how many s it took all of its own to."""
    with (
        standing(fault, folder) as stand,
        scraping(stand.server.metrics_address, folder / "prometheus", FACTOR) as prometheus,
    ):
        stand.forget = prometheus.forget_targets
        return asyncio.run(_observed(fault, stand, prometheus))


@contextmanager
def standing(fault: Fault, folder: Path) -> Iterator[Stand]:
    """A server with what the fault changes of it."""
    settings = Settings(
        repositories=[EMULATED, LEAK / "repository"],
        backends=[LEAK / "backends"],
        models=[DOOR, LEAKY],
        out=folder / "out",
        exit_timeout_s=1,
    )
    with emulating() as file:
        replace(Emulation.read(file), **fault.emulation).write(file)
        with Server(settings) as server:
            stand = Stand(server)
            keep = keeping(server, lambda kind, what: stand.news.append(kind))
            with keep if fault.kept else nullcontext():
                yield stand


async def _observed(fault: Fault, stand: Stand, prometheus: Prometheus) -> tuple[set[str], float]:
    began = time.monotonic()
    doing = asyncio.ensure_future(fault.inject(stand))
    try:
        while time.monotonic() - began < (PATIENCE_S if fault.fires else HEALTHY_S):
            await asyncio.sleep(1)
            if doing.done():
                doing.result()
            fired = await asyncio.to_thread(prometheus.fired)
            if fault.fires and fault.fires <= fired:
                break
        took_s = time.monotonic() - began
        await asyncio.sleep(AFTER_S)
        return await asyncio.to_thread(prometheus.fired), took_s
    finally:
        doing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await doing


def people(count: int, deadline_ms: int = 0) -> Inject:
    """So many who speak all the time; with a deadline, one that nobody's turn meets."""

    async def inject(stand: Stand) -> None:
        async with _calling(stand) as caller:
            if not deadline_ms:
                await asyncio.gather(*(_person(caller, number) for number in range(count)))
            while True:
                await asyncio.gather(
                    *(caller.speak(deadline_ms=deadline_ms) for _ in range(count)),
                    asyncio.sleep(0.3),
                )

    return inject


async def _person(caller: Caller, number: int) -> None:
    """Comes a little after the one before, so that they are not in step."""
    await asyncio.sleep(number * APART_S)
    await crowd(caller, 1, float("inf"), list[Told]())


async def _lose(stand: Stand) -> None:
    """Three requests that a stage forgets, beside others that it answered before."""
    async with asking(stand) as ask:
        await ask(1)
        await asyncio.sleep(2)
        await asyncio.gather(*(ask(1000) for _ in range(3)))


async def _fill(stand: Stand) -> None:
    """Nearly all bytes of a stage are held, while it answers others."""
    async with asking(stand) as ask:
        held = asyncio.ensure_future(ask(257_000))
        try:
            while True:
                await ask(1)
                await asyncio.sleep(0.5)
        finally:
            held.cancel()


def kill(model: str) -> Inject:
    """Its process ends, and nobody brings it back."""

    async def inject(stand: Stand) -> None:
        await _one_turn(stand)
        stand.kill(model)

    return inject


async def _kill_often(stand: Stand) -> None:
    await _one_turn(stand)
    for _ in range(4):
        await asyncio.sleep(2.5)
        stand.kill("emu_speak")


async def _kill_server(stand: Stand) -> None:
    await _one_turn(stand)
    os.kill(stand.server.pid, signal.SIGKILL)


async def _stop_server(stand: Stand) -> None:
    await _one_turn(stand)
    await asyncio.to_thread(stand.server.stop)


async def _forget_server(stand: Stand) -> None:
    await _one_turn(stand)
    stand.forget()


async def _one_turn(stand: Stand) -> None:
    """The door looks after its stages from its first turn on; then time for two scrapes."""
    async with _calling(stand) as caller:
        await caller.speak()
    await asyncio.sleep(2.5)


@asynccontextmanager
async def _calling(stand: Stand) -> AsyncIterator[Caller]:
    caller = Caller(stand.server.grpc_address)
    try:
        yield caller
    finally:
        await caller.close()


@asynccontextmanager
async def asking(stand: Stand) -> AsyncIterator[Callable[[int], Coroutine[Any, Any, None]]]:
    """Sends requests of so many samples to the stage that leaks."""
    async with grpc.aio.insecure_channel(stand.server.grpc_address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        async def ask(samples: int) -> None:
            sound = np.zeros((1, samples), np.float32)
            request = wire.to_request(LEAKY, {"AUDIO": sound}, turn="", parameters={})
            async for _ in stub.ModelStreamInfer(iter([request])):
                pass

        yield ask


HEALTHY: Final = Fault("healthy", frozenset(), people(4))
FAULTS: Final = (
    Fault("more people than compute", frozenset({"ComputeBound"}), people(64)),
    Fault(
        "host work between steps",
        frozenset({"ScheduleBound"}),
        people(56),
        emulation={"host_gap_ms": 80.0},
    ),
    Fault(
        "answers late on the way",
        frozenset({"FirstAudioLate"}),
        people(1),
        emulation={"delays": Delays(transport_ms=3000)},
    ),
    Fault("lost requests", frozenset({"LeakedRequests"}), _lose),
    Fault("bytes held", frozenset({"BytesNearBudget"}), _fill),
    Fault("dead stage", frozenset({"StageDead"}), kill("emu_think")),
    Fault("dead door", frozenset({"StageDead"}), kill(DOOR)),
    Fault("dead stage that no door knows", frozenset({"StageDead"}), kill(LEAKY)),
    Fault("stage that keeps dying", frozenset({"StageRestarts"}), _kill_often, kept=True),
    Fault("killed server", frozenset({"ServerRestarted"}), _kill_server, kept=True),
    Fault("server away", frozenset({"ServerDown"}), _stop_server),
    Fault("no server known", frozenset({"NoServers"}), _forget_server),
    Fault(
        "deadlines that cannot be met",
        frozenset({"TurnErrorsFast", "TurnErrorsSlow"}),
        people(4, deadline_ms=200),
    ),
)
"""In the order of alerts.yaml."""
