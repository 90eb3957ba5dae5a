"""A server of a plan as it runs in a pod, which knows no address but its own."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from deploy.cluster.blueprint import Blueprint
from deploy.cluster.files import PLACEMENT
from deploy.errors import PlanError, TlsUnfit
from deploy.plan import Plan
from deploy.plan_check import Machine, check
from deploy.pod.secret import tls_of
from deploy.processes import ANY, LOCALHOST
from deploy.repositories import Model, with_overrides
from deploy.settings import Ports, Settings
from deploy.tls import Tls
from python_backends.remote_stage.resolved import VARIABLE, named_stages

PORTS: Final = Ports(8000, 8001, 8002)
HEALTH_PORT: Final = 8003
ENGINES: Final = "tensorrt"
"""Configs by which models are served from engines."""

NO_HTTP: Final = "--allow-http=false"
"""Callers and stages speak gRPC, and probes have a port of their own."""

NEVER_HERE: Final = {"shared_memory_bytes": "0"}
"""Of proxies: no replica is on the same host, as far as its /dev/shm goes."""


@dataclass(frozen=True)
class Place:
    """Where the server of a pod listens, and on what it computes. `tls`: the folder of its
    certificates; None: plaintext. `engines`: a repository that `python -m build tensorrt` has
    filled for its GPU; None: it computes on the CPU."""

    host: str = ANY
    ports: Ports = PORTS
    tls: Path | None = None
    engines: Path | None = None


def podded(plan: Plan) -> Plan:
    """The plan without addresses, devices and certificates: whoever runs its pods gives these."""
    nowhere = {"host": LOCALHOST, "ports": None, "device": None}
    servers = {name: server.model_copy(update=nowhere) for name, server in plan.servers.items()}
    return plan.model_copy(update={"servers": servers, "devices": {}, "tls": None})


def read(plan: Plan) -> dict[str, Model]:
    """The models of a plan that can work, on whatever machines. PlanError has every reason why it
    can not."""
    models = plan.models_by_name()
    anywhere = Machine(frozenset(), lambda host: True, sys.maxsize)
    check(podded(plan), models, anywhere)
    return with_overrides(models, plan.overrides())


def settings_of(
    plan: Plan, group: str, place: Place, out: Path, environment: Mapping[str, str]
) -> Settings:
    """How a pod of a server group starts its server. PlanError for a group that the plan has not,
    or when the environment names no replicas of a stage that it calls elsewhere; TlsUnfit when it
    has not the certificates that the plan wants."""
    if group not in plan.servers:
        raise PlanError(f"no server {group!r}; servers: {', '.join(plan.servers)}")
    models, tls, plan = read(plan), _tls(plan, place), podded(plan)
    blueprint = Blueprint(plan, models, out, out / "none", "")
    settings = blueprint.settings(blueprint.whole(group), {})
    _refuse_unnamed(settings.proxies, environment)
    return replace(
        settings,
        host=place.host,
        ports=place.ports,
        proxy_parameters={**NEVER_HERE, **plan.remote},
        environment={key: v for key, v in settings.environment.items() if key != PLACEMENT},
        arguments=[*settings.arguments, NO_HTTP],
        tls=tls,
        admin_key=None,
        **_on_gpu(place),
    )


def _on_gpu(place: Place) -> dict[str, Any]:
    return {"own": (place.engines,), "config_name": ENGINES} if place.engines else {}


def _tls(plan: Plan, place: Place) -> Tls | None:
    """The plan decides whether callers are asked for certificates, and no file that happens to be
    there, or not."""
    if place.tls is None:
        if plan.tls is not None:
            raise TlsUnfit("the plan has tls: --tls names the folder with tls.crt and tls.key")
        return None
    return tls_of(place.tls, asks_callers=plan.tls is not None and plan.tls.callers is not None)


def _refuse_unnamed(stages: Iterable[str], environment: Mapping[str, str]) -> None:
    try:
        named = named_stages(environment.get(VARIABLE, ""))
    except ValueError as fault:
        raise PlanError(str(fault)) from fault
    unnamed = [stage for stage in stages if stage not in named]
    if unnamed:
        raise PlanError(
            f"{VARIABLE} names no replicas of {', '.join(unnamed)}: STAGE=NAME:PORT, with blanks "
            "between several"
        )
