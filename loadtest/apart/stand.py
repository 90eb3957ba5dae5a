"""An emulated deployment to measure: its devices, its servers, and loads put on it."""

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from rich.progress import Progress

from deploy.cluster import Cluster
from deploy.plan import Plan
from loadtest.device import ENVIRONMENT, Emulation, Profile, create, named
from loadtest.ledger import Explanation
from loadtest.load import RunSpec, run

PLANS = Path(__file__).parent / "plans"
OUT = Path(__file__).parents[2] / "out"
MEMORY = Path("/dev/shm")
MODEL = "emu_turn"
SHARED, SPARE = "shared", "spare"
WARM_UP_S = 8.0
"""People who begin together may part and meet again in their first few waves of two seconds."""


@dataclass
class Stand:
    """A running deployment, and where its runs are written."""

    plan: str
    cluster: Cluster
    emulation: Path
    """The file that every server was started with."""

    runs: Path
    progress: Progress | None = None

    def load(
        self,
        name: str,
        people: int,
        seconds: float,
        *,
        warm_up_s: float = WARM_UP_S,
        ramp_s: float = 0.0,
    ) -> Explanation:
        """People at once, closed loop; what became of it."""
        spec = RunSpec(
            name=name,
            target="stages",
            series=f"apart-{self.plan}",
            model=MODEL,
            people=people,
            seconds=seconds,
            warm_up_s=warm_up_s,
            ramp_s=ramp_s,
            knobs={"overrides": self.cluster.plan.overrides()},
            emulation=self.emulation,
            out=self.runs,
        )
        return Explanation.of(run(spec, self.cluster.grpc_address, self.progress))

    def device(self, stage: str) -> Path:
        """The file of the device that a stage computes on."""
        return Path(Emulation.read(self.emulation).devices[stage])

    def elsewhere(self, stage: str) -> dict[str, str]:
        """The environment of a replica of a stage that computes on the spare device."""
        own = Emulation.read(self.emulation)
        file = self.emulation.with_name(f"{stage}-elsewhere.json")
        replace(own, devices={**own.devices, stage: own.devices[SPARE]}).write(file)
        return {ENVIRONMENT: str(file)}


def plan_of(name: str) -> Plan:
    """One of `plans/`."""
    return Plan.read(PLANS / f"{name}.yaml")


@contextmanager
def stand(
    plan: Plan,
    runs: Path,
    progress: Progress | None = None,
    *,
    apart: Collection[str] = (),
    profile: str = "profile",
) -> Iterator[Stand]:
    """An emulated deployment, the stages `apart` on a device of their own; all of it ends with the
    block."""
    with emulating(apart, profile) as file, Cluster(plan, out=file.parent) as cluster:
        yield Stand(plan.name, cluster, file, runs, progress)


@contextmanager
def emulating(apart: Collection[str] = (), profile: str = "profile") -> Iterator[Path]:
    """Devices, and the file that tells of them, named to servers started inside; its folder is
    there for whatever else ends with the block."""
    stem = f"tristage-apart-{os.getpid()}-{uuid4().hex[:6]}"
    folder = OUT / stem
    folder.mkdir(parents=True)
    emulation = _emulation(Profile.named(profile), MEMORY / stem, folder, apart)
    devices = {Path(path) for path in emulation.devices.values()}
    for path in devices:
        create(path)
    file = folder / "emulation.json"
    emulation.write(file)
    try:
        with named(file):
            yield file
    finally:
        for path in devices:
            path.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def _emulation(profile: Profile, stem: Path, folder: Path, apart: Collection[str]) -> Emulation:
    """All stages but those apart on one device; `spare` is listed so that its log is kept with a
    run's, though nobody computes there before a replica is given it."""
    where = {stage: stage if stage in apart else SHARED for stage in (*profile.stages, SPARE)}
    where[SPARE] = SPARE
    files = {stage: f"{stem}-{device}.dev" for stage, device in where.items()}
    return Emulation(
        profile,
        devices=files,
        host_gap_ms=profile.monolith.host_gap_ms_total,
        spans=str(folder / "spans"),
    )
