"""What each server of a plan loads, and which of it is a proxy for a stage of another server."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.plan import Plan
from deploy.repositories import Model, known, to_load, with_proxies

Models = Mapping[str, Model]


@dataclass(frozen=True)
class View:
    """A server's part of the deployment."""

    stages: tuple[str, ...]
    """What it serves to others, or what callers may call."""

    loads: tuple[str, ...]
    """All models it loads, proxies among them."""

    proxies: tuple[str, ...]

    @property
    def own(self) -> tuple[str, ...]:
        """Models that it computes itself."""
        return tuple(name for name in self.loads if name not in self.proxies)


def homes(plan: Plan, models: Models) -> dict[str, str]:
    """Stage -> the server that serves it; the front has what callers need and no server names."""
    named = {stage: name for name, server in plan.servers.items() for stage in server.stages}
    return dict.fromkeys(stages(models, plan.models), plan.front) | named


def stages(models: Models, callers: Iterable[str]) -> list[str]:
    """What computes a caller's request, in the order it is reached: the models behind front doors
    and ensembles, or the one that is called itself. What a stage calls belongs to the stage."""
    found: dict[str, None] = {}
    waiting = list(callers)
    while waiting:
        model = known(models, waiting.pop(0))
        if model.is_wiring:
            steps = [step.model_name for step in model.config.ensemble_scheduling.step]
            waiting = [*(steps or sorted(model.calls)), *waiting]
        else:
            found[model.name] = None
    return list(found)


def view(own: Collection[str], roots: Collection[str], models: Models, placed: Models) -> View:
    """Of a server with the stages `own`, which loads `roots`, where all of `placed` have a home."""
    elsewhere = placed.keys() - own
    loads = to_load(with_proxies(models, elsewhere), sorted({*roots, *own}))
    return View(
        stages=tuple(own),
        loads=tuple(loads),
        proxies=tuple(name for name in placed if name in elsewhere and name in loads),
    )


def views(plan: Plan, models: Models) -> dict[str, View]:
    """Server -> what it loads."""
    home = homes(plan, models)
    return {name: view_of(plan, models, name, home) for name in plan.servers}


def view_of(
    plan: Plan,
    models: Models,
    server: str,
    home: Mapping[str, str],
    only: Collection[str] | None = None,
) -> View:
    """Of one server, or of one more like it that serves `only` some of its stages."""
    own = [stage for stage, name in home.items() if name == server]
    placed = {stage: models[stage] for stage in home}
    roots = plan.models if server == plan.front else ()
    return view(own if only is None else list(only), roots, models, placed)


def called_apart(found: Mapping[str, View]) -> set[str]:
    """Stages that some server calls on another: the placement file has to say where they are."""
    return {stage for view in found.values() for stage in view.proxies}


def belonging(stage: str, view: View, models: Models) -> list[str]:
    """A stage and the models that it calls, directly or not, except other stages."""
    others = (set(view.stages) | set(view.proxies)) - {stage}
    waiting, found = [stage], dict[str, None]()
    while waiting:
        name = waiting.pop()
        if name not in found and name not in others and name in models:
            found[name] = None
            waiting.extend(sorted(models[name].calls))
    return list(found)


def artefact_bytes(stage: str, view: View, models: Models) -> int:
    """Size of the files that a stage loads: its own, those of the models it calls, except other
    stages, and those that each of its engines opens."""
    own = [models[name] for name in belonging(stage, view, models)]
    return sum(
        size_of(model.version_folder)
        + model.engines * sum(size_of(models[one].version_folder) for one in model.opens)
        for model in own
    )


def size_of(folder: Path) -> int:
    """Of the files below a folder; 0 where there is none."""
    if not folder.exists():
        return 0
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
