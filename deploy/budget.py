"""Memory: what the servers of a device, or one server, need of it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from deploy.errors import BytesUnfit, RepositoryError
from deploy.plan import Plan
from deploy.repositories import Model
from deploy.views import Models, View, artefact_bytes, belonging, size_of, views
from python_backends.declared import Declared
from python_backends.sizes import byte_count, told_bytes

TRITONSERVER = "tritonserver"
SERVER_BYTES = byte_count("480MiB")
"""Of the server beside its models: messages on their way, which it puts no cap on."""


@dataclass(frozen=True)
class Occupant:
    """Servers alike on a device: how many, and what each loads."""

    name: str
    device: str | None
    view: View
    count: int = 1


def over_budget(plan: Plan, models: Models, occupants: Iterable[Occupant]) -> Iterator[str]:
    """A line for each device whose servers need more than its `bytes`."""
    needs: dict[str, list[tuple[Occupant, dict[str, int]]]] = {}
    for one in occupants:
        if one.device is not None:
            needs.setdefault(one.device, []).append((one, needed(plan, models, one.view)))
    for device, servers in needs.items():
        room = plan.devices[device].bytes
        total = sum(one.count * sum(parts.values()) for one, parts in servers)
        if room is not None and total > room:
            each = "; ".join(
                f"{one.name} x {one.count}: {told_bytes(one.count * sum(parts.values()))}, each "
                f"{told_parts(parts)}"
                for one, parts in servers
            )
            yield (
                f"devices.{device}.bytes: {told_bytes(room)}, but its servers need "
                f"{told_bytes(total)} ({each})"
            )


def over_machine(
    plan: Plan,
    models: Models,
    occupants: Iterable[Occupant],
    room: int,
    is_local: Callable[[str], bool],
) -> Iterator[str]:
    """A line when the servers of this machine need more than the `room` bytes it has. What servers
    on a GPU need lies there."""
    needs: dict[str, int] = {}
    for one in occupants:
        device = plan.devices.get(one.device or "")
        if is_local(plan.servers[one.name].host) and (device is None or device.gpu is None):
            for name, nbytes in needed(plan, models, one.view).items():
                needs[name] = needs.get(name, 0) + one.count * nbytes
            needs[TRITONSERVER] = needs.get(TRITONSERVER, 0) + one.count * SERVER_BYTES
    total = sum(needs.values())
    if total > room:
        yield (
            f"this machine has {told_bytes(room)}, but its servers need {told_bytes(total)} in "
            f"all: {told_parts(needs)}"
        )


def needed_bytes(plan: Plan, models: Models, view: View) -> int:
    """What a server of a plan takes in all."""
    return sum(needed(plan, models, view).values())


def needed(plan: Plan, models: Models, view: View) -> dict[str, int]:
    """What a server of a plan takes, model by model: what the plan says of a stage, with all that
    it calls, or else what each model declares; of a stage of a plan at least its artefacts."""
    found: dict[str, int] = {}
    for stage in view.stages:
        given = plan.stages[stage].bytes if stage in plan.stages else 0
        if given:
            found[stage] = max(given, artefact_bytes(stage, view, models))
        else:
            found |= {
                one: model_bytes(models[one], models) for one in belonging(stage, view, models)
            }
    others = [one for one in view.own if one not in _all_belonging(view, models)]
    found |= {one: model_bytes(models[one], models) for one in others}
    proxies = {name: models[name].as_proxy() for name in view.proxies}
    return found | {f"{n} (proxy)": model_bytes(one, models) for n, one in proxies.items()}


def _all_belonging(view: View, models: Models) -> set[str]:
    return {one for stage in view.stages for one in belonging(stage, view, models)}


def model_bytes(model: Model, models: Models) -> int:
    """What a model declares; the size of its artefacts, and of those it opens, where it declares
    nothing."""
    if model.config.platform == "ensemble":
        return 0
    declared = declared_of(model)
    if declared is not None or model.is_proxy:
        return declared.total if declared else 0
    opened = sum(size_of(models[one].version_folder) for one in model.opens if one in models)
    return size_of(model.version_folder) + model.engines * opened


def declared_of(model: Model) -> Declared | None:
    """See Declared.of; RepositoryError when it cannot be read."""
    try:
        return Declared.of(model.parameters)
    except ValueError as fault:
        raise RepositoryError(f"{model.config_file}: {fault}") from fault


def refuse_over(room: int, loads: Iterable[str], models: Models) -> None:
    """BytesUnfit when the models `loads`, and the server, need more than `room` bytes; it names
    what each needs."""
    parts = {name: model_bytes(models[name], models) for name in loads}
    parts = {name: nbytes for name, nbytes in parts.items() if nbytes} | {
        TRITONSERVER: SERVER_BYTES
    }
    total = sum(parts.values())
    if total > room:
        raise BytesUnfit(
            f"the models need {told_bytes(total)}, and there are {told_bytes(room)}: "
            f"{told_parts(parts)}. Load fewer, set smaller ones (deploy/SAFETY.md: Bytes), or say "
            "how much there is with --bytes"
        )


def told_parts(parts: Mapping[str, int]) -> str:
    """For a person."""
    return ", ".join(f"{name} {told_bytes(nbytes)}" for name, nbytes in parts.items())


def planned(plan: Plan, models: Models) -> Iterator[Occupant]:
    """The servers of a plan."""
    for name, view in views(plan, models).items():
        server = plan.servers[name]
        yield Occupant(name, server.device, view, server.replicas)
