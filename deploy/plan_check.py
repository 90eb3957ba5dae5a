"""Whether a plan can work: every reason why not, each for a person."""

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, fields

from deploy import processes
from deploy.budget import over_budget, over_machine, planned
from deploy.errors import PlanError, RepositoryError
from deploy.memory import machine_bytes
from deploy.plan import Plan, ServerPlan
from deploy.repositories import Model, with_overrides
from deploy.settings import LISTENERS
from deploy.views import Models, homes
from python_backends.remote_stage.settings import RemoteSettings

CALLED_DIRECTLY = (
    "stages that live in the front are called directly; give them a server of their own"
)
ANY_ADDRESS = ("0.0.0.0", "::")
LOOPBACK = ("127.", "localhost", "::1")


@dataclass(frozen=True)
class Machine:
    """What a plan needs to know of the machine that it starts servers on."""

    cores: frozenset[int] = field(default_factory=lambda: frozenset(os.sched_getaffinity(0)))
    is_local: Callable[[str], bool] = processes.is_local
    bytes: int = field(default_factory=machine_bytes)


def read(plan: Plan) -> dict[str, Model]:
    """The models of the plan's repositories, with its parameters, once it is known to work here.

    PlanError has every reason, one a line.
    """
    models = plan.models_by_name()
    check(plan, models)
    return with_overrides(models, plan.overrides())


def check(plan: Plan, models: Models, machine: Machine | None = None) -> None:
    """PlanError with every reason, one a line, why the plan cannot work. `models` have the
    parameters of their own configs."""
    found = reasons(plan, models, machine or Machine())
    if found:
        raise PlanError("\n".join(found))


def reasons(plan: Plan, models: Models, machine: Machine) -> list[str]:
    """Every reason; what depends on names is only looked at when they are all known."""
    found = [*_unknown(plan, models), *_parameters(plan, models), *_remote(plan)]
    if not found:
        models = with_overrides(models, plan.overrides())
        found += [*_placing(plan, models), *_addresses(plan, machine), *_cores(plan, machine)]
    if not found:
        occupants = list(planned(plan, models))
        found += over_budget(plan, models, occupants)
        found += over_machine(plan, models, occupants, machine.bytes, machine.is_local)
    return found


def _unknown(plan: Plan, models: Models) -> Iterator[str]:
    servers = ", ".join(plan.servers)
    if plan.front not in plan.servers:
        yield f"front: no server {plan.front!r}; servers: {servers}"
    known = ", ".join(sorted(models))
    for name in plan.models:
        if name not in models:
            yield f"models: no model {name!r}; known: {known}"
    for name in plan.stages:
        if name not in models:
            yield f"stages.{name}: no model {name!r}; known: {known}"
    for name, server in plan.servers.items():
        for stage in server.stages:
            if stage not in models:
                yield f"servers.{name}.stages: no model {stage!r}; known: {known}"
        if server.device is not None and server.device not in plan.devices:
            devices = ", ".join(plan.devices) or "none"
            yield f"servers.{name}.device: no device {server.device!r}; devices: {devices}"


def _parameters(plan: Plan, models: Models) -> Iterator[str]:
    for name, stage in plan.stages.items():
        if name not in models:
            continue
        has_engines = "engines" in models[name].parameters
        if stage.engines > 1 and not has_engines:
            yield (
                f"stages.{name}.engines: only 1, since its config.pbtxt has no parameter 'engines';"
                " scale it by replicas of its server"
            )
        try:
            with_overrides(models, {name: stage.parameters})
        except RepositoryError as fault:
            yield f"stages.{name}: {fault}"


def _remote(plan: Plan) -> Iterator[str]:
    """`controlled` is not for a plan to say: it follows from the stage."""
    accepted = [field.name for field in fields(RemoteSettings) if field.name != "controlled"]
    for key, value in plan.remote.items():
        if key not in accepted:
            yield f"remote.{key}: unknown; accepted: {', '.join(accepted)}"
        elif not value.isdecimal():
            yield f"remote.{key}: {value!r} is not a whole number"
    if all(key in accepted and value.isdecimal() for key, value in plan.remote.items()):
        try:
            RemoteSettings(True, **{key: int(value) for key, value in plan.remote.items()})
        except ValueError as fault:
            yield f"remote: {fault}"


def _placing(plan: Plan, models: Models) -> Iterator[str]:
    servers_of: dict[str, list[str]] = {}
    for name, server in plan.servers.items():
        for stage in server.stages:
            servers_of.setdefault(stage, []).append(name)
    for stage, names in servers_of.items():
        if len(names) > 1:
            where = "twice on" if len(set(names)) == 1 else "on"
            yield f"stage {stage!r} is {where} {' and '.join(dict.fromkeys(names))}; one must do"
        elif names[0] != plan.front:
            yield from _why_not_apart(models[stage], names[0], plan, models)
    for name, server in plan.servers.items():
        if name != plan.front and not server.stages:
            yield f"servers.{name}: serves no stage; only the front may"
    if plan.servers[plan.front].replicas > 1:
        yield f"servers.{plan.front}.replicas: the front is one; {CALLED_DIRECTLY}"


def _why_not_apart(model: Model, server: str, plan: Plan, models: Models) -> Iterator[str]:
    """Reasons why a model cannot be served outside the front, or away from who uses it."""
    place = f"servers.{server}.stages: {model.name!r}"
    if model.is_wiring:
        yield f"{place} only wires stages together, and must be in the front ({plan.front})"
    if model.config.HasField("sequence_batching"):
        yield f"{place} keeps sequences, which a proxy cannot pass on; it must be in the front"
    for user in models.values():
        if model.name in user.opens:
            yield f"{place} runs inside {user.name!r}; place that instead"
        elif model.config.backend == "slot_engine" and model.name in user.calls:
            if homes(plan, models).get(user.name) != server:
                yield f"{place} keeps the state of {user.name!r}, and must be on its server"
            elif plan.servers[server].replicas > 1:
                yield (
                    f"{place} keeps the state of {user.name!r}; leave it out, and every replica "
                    "gets one of its own"
                )


def _addresses(plan: Plan, machine: Machine) -> Iterator[str]:
    taken: dict[tuple[str, int], str] = {}
    hosts = {server.host for server in plan.servers.values()}
    afar = sorted(host for host in hosts if not machine.is_local(host))
    for name, server in plan.servers.items():
        if server.host in ANY_ADDRESS:
            yield f"servers.{name}.host: give the address that the others reach it at"
        elif server.host in afar and server.ports is None:
            yield f"servers.{name}: runs on another machine ({server.host}); give its ports"
        elif afar and server.host.startswith(LOOPBACK):
            yield (
                f"servers.{name}.host: {server.host} cannot be reached from {afar[0]}; give the "
                "address of its machine"
            )
        for label, port in _ports(name, server):
            if port > 65535:
                yield f"servers.{name}.ports: {label} would be {port}, above 65535"
            other = taken.setdefault((server.host, port), label)
            if other != label:
                yield f"{server.host}:{port} is used twice, for {other} and {label}"


def _ports(name: str, server: ServerPlan) -> Iterator[tuple[str, int]]:
    for number in range(1, server.replicas + 1):
        ports = server.ports_of(number)
        for purpose in LISTENERS if ports else ():
            yield f"{purpose} of {name}-{number}", getattr(ports, purpose)


def _cores(plan: Plan, machine: Machine) -> Iterator[str]:
    for name, server in plan.servers.items():
        if server.device is None or not machine.is_local(server.host):
            continue
        missing = set(plan.devices[server.device].cores) - machine.cores
        if missing:
            cores = ", ".join(map(str, sorted(machine.cores)))
            yield (
                f"devices.{server.device}.cores: this machine, which is to run {name!r}, has no "
                f"core {', '.join(map(str, sorted(missing)))}; it has {cores}"
            )


def to_start(plan: Plan, only: Collection[str] | None, machine: Machine) -> list[str]:
    """Names of the servers that this machine is to run: all, or `only` some. PlanError when it
    cannot."""
    unknown = sorted(set(only or ()) - plan.servers.keys())
    if unknown:
        known = ", ".join(plan.servers)
        raise PlanError(f"no server {', '.join(unknown)} in the plan; servers: {known}")
    chosen = [name for name in plan.servers if only is None or name in only]
    here = [name for name in chosen if machine.is_local(plan.servers[name].host)]
    afar = [f"{name} ({plan.servers[name].host})" for name in chosen if name not in here]
    if afar:
        hint = f"; start the others here: --only {','.join(here)}" if here else ""
        raise PlanError(f"not addresses of this machine: {', '.join(afar)}{hint}")
    unnamed = [name for name in plan.servers if name not in chosen and not plan.servers[name].ports]
    if unnamed:
        raise PlanError(f"started elsewhere, so their ports must be given: {', '.join(unnamed)}")
    return chosen
