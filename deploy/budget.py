"""Memory: what the servers of a device need of it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from deploy.plan import Plan
from deploy.plan_values import told_bytes
from deploy.views import Models, View, artefact_bytes, views


@dataclass(frozen=True)
class Occupant:
    """Servers alike on a device: how many, and what each loads."""

    name: str
    device: str | None
    view: View
    count: int = 1


def over_budget(plan: Plan, models: Models, occupants: Iterable[Occupant]) -> Iterator[str]:
    """A line for each device whose servers need more than its `bytes`."""
    needs: dict[str, dict[str, int]] = {}
    for one in occupants:
        if one.device is not None:
            size = one.count * needed_bytes(plan, models, one.view)
            needs.setdefault(one.device, {})[f"{one.name} x {one.count}"] = size
    for device, parts in needs.items():
        room, total = plan.devices[device].bytes, sum(parts.values())
        if room is not None and total > room:
            told = ", ".join(f"{name}: {told_bytes(size)}" for name, size in parts.items())
            yield (
                f"devices.{device}.bytes: {told_bytes(room)}, but its servers need "
                f"{told_bytes(total)} ({told})"
            )


def needed_bytes(plan: Plan, models: Models, view: View) -> int:
    """What a server takes: of each stage what it declares, or its artefacts where they are more."""
    declared = {name: stage.bytes for name, stage in plan.stages.items()}
    return sum(
        max(declared.get(stage, 0), artefact_bytes(stage, view, models)) for stage in view.stages
    )


def planned(plan: Plan, models: Models) -> Iterator[Occupant]:
    """The servers of a plan."""
    for name, view in views(plan, models).items():
        server = plan.servers[name]
        yield Occupant(name, server.device, view, server.replicas)
