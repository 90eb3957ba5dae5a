"""Runs experiments: devices, servers, load, and the explanation of every run."""

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from uuid import uuid4

from rich.progress import Progress

from deploy.launcher import Server
from deploy.settings import Settings
from deploy.stubs import kill, stubs
from loadtest.device import Delays, Emulation, Profile, create, named
from loadtest.ledger import Explanation
from loadtest.load import RunSpec, bars, run
from loadtest.seed.experiment import ROOT, Experiment, Setup

MEMORY = Path("/dev/shm")
PROFILES = ROOT / "loadtest" / "profiles"


def execute(experiments: Sequence[Experiment], out: Path) -> dict[str, Explanation]:
    """Run all, in order; experiments in a row with one setup share a server."""
    found: dict[str, Explanation] = {}
    with bars() as progress:
        task = progress.add_task("experiments", total=len(experiments), told="")
        for setup, group in groupby(experiments, key=lambda one: one.setup):
            with serving(setup) as (server, emulation):
                for one in group:
                    folder = _run(one, server, emulation, out, progress)
                    found[one.name] = Explanation.of(folder)
                    progress.update(task, advance=1, told=one.name)
    return found


@contextmanager
def serving(setup: Setup) -> Iterator[tuple[Server, Path]]:
    """A server of `setup` and its emulation file; devices and server end with the block."""
    with _emulating(setup) as file, Server(_settings(setup)) as server:
        yield server, file


def _settings(setup: Setup) -> Settings:
    return Settings(
        repositories=[setup.system.repository],
        models=[setup.system.model],
        overrides=setup.server_overrides(),
        backends=list(setup.system.backends),
        exit_timeout_s=2,
    )


@contextmanager
def _emulating(setup: Setup) -> Iterator[Path]:
    """The emulation file, named to processes started inside."""
    stem = f"tristage-seed-{os.getpid()}-{uuid4().hex[:6]}"
    folder = ROOT / "out" / stem
    folder.mkdir(parents=True)
    profile = read_profile(setup.profile_name)
    shared = MEMORY / f"{stem}-shared.dev"
    devices = {
        stage: str(MEMORY / f"{stem}-{stage}.dev" if stage in setup.apart else shared)
        for stage in (*profile.stages, "monolith")
    }
    for device in set(devices.values()):
        create(Path(device))
    file = folder / "emulation.json"
    _emulation(setup, profile, devices, folder).write(file)
    try:
        with named(file):
            yield file
    finally:
        for device in set(devices.values()):
            Path(device).unlink(missing_ok=True)
        shutil.rmtree(folder)


def _emulation(setup: Setup, profile: Profile, devices: dict[str, str], folder: Path) -> Emulation:
    return Emulation(
        profile,
        devices=devices,
        speed=setup.speed,
        host_gap_ms=profile.monolith.host_gap_ms_total,
        gap_per_member_ms=profile.monolith.gap_per_member_ms,
        spans=str(folder / "spans"),
        delays=Delays(**dict(setup.delays)),
        pieces=setup.pieces,
    )


def read_profile(name: str) -> Profile:
    """The seed's own, or a fitted one of loadtest/profiles."""
    fitted = PROFILES / f"{name}.json"
    return Profile.read(fitted) if fitted.exists() else Profile.named(name)


def _run(one: Experiment, server: Server, emulation: Path, out: Path, progress: Progress) -> Path:
    spec = RunSpec(
        name=one.name,
        target=one.setup.system.model,
        series=one.series,
        model=one.setup.system.model,
        people=one.people,
        seconds=one.seconds,
        warm_up_s=one.warm_up_s,
        timeout_s=one.timeout_s or read_profile(one.setup.profile_name).client.timeout_s,
        ramp_s=0.0,
        buckets=one.buckets,
        knobs=dict(one.knobs) | {"overrides": one.setup.server_overrides()},
        emulation=emulation,
        out=out,
    )
    with _killing(one, server):
        return run(spec, server.grpc_address, progress)


@contextmanager
def _killing(one: Experiment, server: Server) -> Iterator[None]:
    """Kill a model's process now and then, and bring it back as a watchdog would."""
    if not one.kill:
        yield
        return
    with ThreadPoolExecutor(1) as threads:
        killed = threads.submit(_kill_now_and_then, one, server)
        yield
        killed.result()


def _kill_now_and_then(one: Experiment, server: Server) -> None:
    began = time.monotonic() + one.warm_up_s
    for number in range(int(one.seconds / one.kill_every_s)):
        due = began + (number + 0.5) * one.kill_every_s
        time.sleep(max(0.0, due - time.monotonic()))
        _kill_and_reload(server, one.kill)


def _kill_and_reload(server: Server, model: str) -> None:
    victims = stubs(server.pid, [model])
    if not victims:
        raise RuntimeError(f"{model} has no process to kill")
    for victim in victims:
        kill(victim)
    server.reload(model)


def write_json(path: Path, value: object) -> None:
    """Readable and whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(partial, path)
