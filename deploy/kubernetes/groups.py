"""What a cluster needs to know of each server of a plan, and what it cannot be told. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from deploy.budget import SERVER_BYTES, declared_of, model_bytes, needed
from deploy.errors import PlanError
from deploy.kubernetes.engines import engines
from deploy.plan import Plan
from deploy.pod.placing import ENGINES, PORTS, podded
from deploy.processes import LOCALHOST
from deploy.proxies import has_control
from deploy.settings import REPOSITORIES
from deploy.views import Models, View, belonging, homes, views
from python_backends.remote_stage.resolved import SERVER_VARIABLE, VARIABLE
from python_backends.sizes import byte_count

APP: Final = "tristage"
NAME_CHARS: Final = 63
"""Of a Service (RFC 1123)."""

LAUNCHER_BYTES: Final = byte_count("160MiB")
"""Of `python -m deploy pod` beside the server."""

UNDECLARED_SHM: Final = byte_count("16MiB")
"""Of a model that declares no region of shared memory."""

SHM_ROOM: Final = 1.25
LEAST_SHM: Final = byte_count("64MiB")
MIB: Final = 2**20
OURS: Final = (VARIABLE, SERVER_VARIABLE, "CUDA_VISIBLE_DEVICES")
"""Variables that a pod is given by whoever runs it."""


@dataclass(frozen=True)
class Group:
    """A server of a plan and its replicas, which are alike."""

    server: str
    view: View
    is_front: bool
    replicas: int
    callers: tuple[str, ...]
    """The plan's servers whose proxies send requests here."""

    calls: tuple[str, ...]
    """The plan's servers that its own proxies send requests to."""

    placement: str
    """Value of TRISTAGE_PLACEMENT_DNS."""

    memory_mib: int
    shm_mib: int
    cores: int
    engines: tuple[str, ...]
    """Models that it computes on a GPU of its own; none: it has no GPU."""

    has_tls: bool
    is_scaled: bool
    """One of its stages tells what replicas are counted by."""

    @property
    def gpus(self) -> int:
        """A stage is scaled by replicas: a pod has one at most."""
        return int(bool(self.engines))

    @property
    def name(self) -> str:
        """Of its Deployment, its headless Service and the like."""
        return name_of(self.server)


def name_of(server: str) -> str:
    """Of a plan's server in the cluster: RFC 1123 knows no underscore."""
    return f"{APP}-{server.replace('_', '-')}"


def groups(plan: Plan, models: Models) -> list[Group]:
    """One for each server. PlanError with every reason, one a line, why the plan cannot be said in
    Kubernetes. `models`: of a plan that can work elsewhere."""
    found = [*_reasons(plan)]
    if found:
        raise PlanError("\n".join(found))
    seen, home = views(podded(plan), models), homes(plan, models)
    if unfit := [*_unfit_for_gpus(plan, models, seen)]:
        raise PlanError("\n".join(unfit))
    return [_group(plan, models, server, seen, home) for server in plan.servers]


def _group(
    plan: Plan, models: Models, server: str, seen: dict[str, View], home: dict[str, str]
) -> Group:
    view, given = seen[server], plan.servers[server]
    device = plan.devices[given.device] if given.device else None
    nbytes = _models_bytes(podded(plan), models, view) + SERVER_BYTES + LAUNCHER_BYTES
    return Group(
        server=server,
        view=view,
        is_front=server == plan.front,
        replicas=given.replicas,
        callers=tuple(
            other
            for other, its in seen.items()
            if other != server and set(its.proxies) & set(view.stages)
        ),
        calls=tuple(dict.fromkeys(home[stage] for stage in view.proxies)),
        placement=" ".join(f"{one}={name_of(home[one])}:{PORTS.grpc}" for one in view.proxies),
        memory_mib=_mib(nbytes),
        shm_mib=_mib(max(LEAST_SHM, SHM_ROOM * sum(_shm(models, view)))),
        cores=len(device.cores) if device and device.cores else 1,
        engines=engines(models, view) if device and device.gpu is not None else (),
        has_tls=plan.tls is not None,
        is_scaled=server != plan.front and any(has_control(models[one].config) for one in view.own),
    )


def _unfit_for_gpus(plan: Plan, models: Models, seen: dict[str, View]) -> Iterator[str]:
    """GPUs on which nothing would be computed, and configs that a server on one does not take."""
    for name, server in plan.servers.items():
        if server.device is None or plan.devices[server.device].gpu is None:
            continue
        if not engines(models, seen[name]):
            yield (
                f"servers.{name}.device: {server.device} has a gpu, and what {name} serves would "
                f"be computed on the CPU: leave the gpu out, or have loops use it (stages: "
                f"{{think: {{runtime: {ENGINES}}}}})"
            )
        if any(models[one].config_file.parent != models[one].folder for one in seen[name].own):
            yield (
                f"config_name: {plan.config_name}: {name} has a gpu, and takes configs/"
                f"{ENGINES}.pbtxt; leave one of them out"
            )


def _models_bytes(plan: Plan, models: Models, view: View) -> int:
    """What a plan says of a stage, but no less than its models declare: the launcher in the pod
    refuses to load what they declare into less, and they may well take it."""
    parts = needed(plan, models, view)
    for stage in view.stages:
        if stage in plan.stages and plan.stages[stage].bytes:
            declared = (model_bytes(models[one], models) for one in belonging(stage, view, models))
            parts[stage] = max(parts[stage], sum(declared))
    return sum(parts.values())


def _shm(models: Models, view: View) -> Iterator[int]:
    for name in view.loads:
        declared = declared_of(models[name])
        yield UNDECLARED_SHM if declared is None else declared.shm


def _mib(nbytes: float) -> int:
    return math.ceil(nbytes / MIB)


def _reasons(plan: Plan) -> Iterator[str]:
    yield from _outside_the_image(plan)
    for name, server in plan.servers.items():
        place = f"servers.{name}"
        if server.host != LOCALHOST:
            yield f"{place}.host: {server.host}: a pod has no address beforehand; leave it out"
        if server.ports is not None:
            yield f"{place}.ports: every pod has the same ones; leave them out"
        for variable in sorted(set(OURS) & server.environment.keys()):
            yield f"{place}.environment.{variable}: the cluster gives it; leave it out"
        if len(name_of(name)) > NAME_CHARS:
            yield f"{place}: {name_of(name)} has more than {NAME_CHARS} characters"
    for label in _twice(map(name_of, plan.servers)):
        yield f"servers: two of them would be named {label}"
    for device in _twice(one.device for one in plan.servers.values() if one.device):
        sharing = [name for name, one in plan.servers.items() if one.device == device]
        yield (
            f"devices.{device}: {' and '.join(sharing)} share it, and pods share no device; give "
            "each its own, or put their stages in one server"
        )


def _outside_the_image(plan: Plan) -> Iterator[str]:
    """Folders beside the plan are not in the image, whose own repositories are the default."""
    if plan.repositories != [str(path) for path in REPOSITORIES]:
        yield f"repositories: {', '.join(plan.repositories)}: a pod has those of its image only"
    for key in ("own", "backends"):
        folders = getattr(plan, key)
        if folders:
            yield f"{key}: {', '.join(folders)}: a pod has what is in its image only"


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]
