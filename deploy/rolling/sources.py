"""What a version of a stage consists of: the models that are brought in with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2

from deploy.errors import RepositoryError, UpgradeRefused
from deploy.repositories import Model, Overrides, known, read_models
from deploy.views import stages
from python_backends.versions import model_of

Models = Mapping[str, Model]
Files = tuple[tuple[str, int, int], ...]
"""Of a folder: relative path, bytes and time of change in ns of each file, in order."""

WRITTEN = "__pycache__"
"""Which loading a version may add to its folder."""


@dataclass(frozen=True)
class Version:
    """`models`: the stage, and of what it calls and opens whatever this version brings along; by
    their own names, each with a version folder that is named by the number. `files`: what those
    folders had when it was made; a version is its folders, and has no copy of them."""

    stage: str
    number: int
    where: str
    """For a person."""

    models: Models
    files: Mapping[str, Files]

    @property
    def loads(self) -> list[str]:
        """Of `models` those that are loaded, the stage last; the others are opened in a process."""
        opened = {name for model in self.models.values() for name in model.opens}
        return [*sorted(self.models.keys() - opened - {self.stage}), self.stage]

    @property
    def names(self) -> dict[str, str]:
        """Of its models beside those that serve: `think.v2`."""
        return {name: model_of(name, self.number) for name in self.models}

    def beside(self, others: Mapping[str, str] | None = None) -> dict[str, Model]:
        """The same under these names, which they call each other by; `others`: `names` of the
        versions that come with it, which they call as well."""
        names = {**(others or {}), **self.names}
        found = (_renamed(model, names) for model in self.models.values())
        return {model.name: model for model in found}

    @property
    def other_files(self) -> list[Path]:
        """Folders that have other files by now."""
        return [
            model.version_folder
            for name, model in self.models.items()
            if files_of(model.version_folder) != self.files[name]
        ]

    def refuse_other_files(self) -> None:
        """UpgradeRefused when it can no longer be loaded as it was."""
        if changed := self.other_files:
            raise UpgradeRefused(
                f"version {self.number} of {self.stage} is not there any more: "
                f"{', '.join(map(str, changed))} has other files than when it was loaded; bring a "
                "folder of its own in with `upgrade --from`"
            )


def as_started(stage: str, models: Models, callers: Sequence[str]) -> Version:
    """The version that a server was started with. UpgradeRefused unless it is a stage of turns."""
    _refuse_others(stage, models, callers)
    number = _number(models[stage].version_folder)
    mine = {name: _with_artefacts(models[name]) for name in _belonging(stage, models, callers)}
    return _version(stage, number, f"{models[stage].folder}", mine)


def of_number(now: Version, number: int, models: Models) -> Version:
    """Version folder `number` of a stage, and of whatever belongs to it and has one."""
    mine = {}
    for name in now.models:
        folder = models[name].folder / str(number)
        if folder.is_dir():
            mine[name] = replace(models[name], artefacts=folder)
    if not mine:
        have = sorted({folder.name for name in now.models for folder in _versions(models[name])})
        raise UpgradeRefused(
            f"{now.stage} has no version {number}: neither it nor what it calls has a folder "
            f"{number}/; there are {', '.join(have)}"
        )
    return _whole(now, number, f"version folder {number}/", mine)


def of_folder(now: Version, number: int, folder: Path, overrides: Overrides) -> Version:
    """A stage as a repository has it, e.g. one that `python -m build think --from` has written."""
    found = read_models([folder], {})
    if now.stage not in found:
        names = ", ".join(sorted(found))
        raise UpgradeRefused(f"{folder} has no model {now.stage!r}; it has {names}")
    mine = {
        name: _set(_with_artefacts(model), overrides.get(name, {}))
        for name, model in found.items()
        if name in {now.stage, *_reached(now.stage, found)}
    }
    return _whole(now, number, str(folder), mine)


def refuse_overwritten(now: Version, new: Version) -> None:
    """UpgradeRefused when the new one was written over the files of the one that serves, which
    could then not be brought back."""
    changed = {folder.resolve() for folder in now.other_files}
    for model in new.models.values():
        if (folder := model.version_folder.resolve()) in changed:
            raise UpgradeRefused(
                f"{folder} has other files than when version {now.number} of {now.stage}, which "
                "serves, was loaded from it: that one could not be brought back. Put the new files "
                "into a folder of their own (build --into FOLDER), and the old ones back"
            )


def files_of(folder: Path) -> Files:
    """See Files; none where there is no folder."""
    found = []
    for path in sorted(folder.resolve().rglob("*")):
        if path.is_file() and WRITTEN not in path.parts:
            told = path.stat()
            found.append((str(path.relative_to(folder.resolve())), told.st_size, told.st_mtime_ns))
    return tuple(found)


def refuse_others_callers(now: Version, new: Version) -> None:
    """UpgradeRefused when callers would see another model: tensors, batches, how it answers."""
    old, to = now.models[now.stage].config, new.models[new.stage].config
    for field in ("input", "output", "max_batch_size", "model_transaction_policy"):
        if _told(old, field) != _told(to, field):
            raise UpgradeRefused(
                f"version {new.number} of {new.stage} has another {field} than version "
                f"{now.number}: whoever calls it would have to change with it"
            )


def _version(stage: str, number: int, where: str, mine: Models) -> Version:
    files = {name: files_of(model.version_folder) for name, model in mine.items()}
    models = {name: replace(model, number=number) for name, model in mine.items()}
    return Version(stage, number, where, models, files)


def _whole(now: Version, number: int, where: str, mine: Models) -> Version:
    """With the stage itself, and what is opened in its process, even where they stay as they are:
    a process has one config, and opens what lies beside it."""
    stage = mine.get(now.stage, now.models[now.stage])
    mine = {now.stage: stage, **{n: now.models[n] for n in stage.opens if n in now.models}, **mine}
    return _version(now.stage, number, where, mine)


def _refuse_others(stage: str, models: Models, callers: Sequence[str]) -> None:
    turns = stages(models, callers)
    if stage not in turns:
        hint = [one for one in turns if stage in _reached(one, models)]
        belongs = f"; it belongs to {hint[0]}, which can be" if hint else ""
        raise UpgradeRefused(
            f"{known(models, stage).name!r} is not a stage of turns here and cannot be upgraded"
            f"{belongs}: {', '.join(turns)}"
        )
    if models[stage].is_proxy:
        raise UpgradeRefused(
            f"{stage!r} is served by another server: give that one's plan the new version, "
            "and replace its replicas one by one with `python -m deploy scale`"
        )


def _belonging(stage: str, models: Models, callers: Sequence[str]) -> list[str]:
    others = set(stages(models, callers)) - {stage}
    return [one for one in (stage, *_reached(stage, models)) if one not in others]


def _reached(stage: str, models: Models) -> list[str]:
    """What a stage calls or opens, directly or not."""
    found: dict[str, None] = {}
    waiting = [stage]
    while waiting:
        model = models[waiting.pop()]
        more = [n for n in sorted(model.calls | model.opens) if n in models and n not in found]
        found |= dict.fromkeys(more)
        waiting += more
    return [name for name in found if name != stage]


def _with_artefacts(model: Model) -> Model:
    if not model.version_folder.is_dir():
        raise RepositoryError(f"{model.folder} has no version folder")
    return replace(model, artefacts=model.version_folder)


def _versions(model: Model) -> list[Path]:
    return [path for path in model.folder.iterdir() if path.name.isdigit()]


def _number(folder: Path) -> int:
    return int(folder.name) if folder.name.isdigit() else 1


def _renamed(model: Model, names: Mapping[str, str]) -> Model:
    config = model_config_pb2.ModelConfig()
    config.CopyFrom(model.config)
    config.name = names[model.name]
    for key, value in model.parameters.items():
        if key.endswith("_model") and value in names and value != model.name:
            config.parameters[key].string_value = names[value]
    return replace(model, name=config.name, config=config)


def _set(model: Model, parameters: Mapping[str, str]) -> Model:
    """With what the server was told to set, where the model still has it."""
    config = model_config_pb2.ModelConfig()
    config.CopyFrom(model.config)
    for key, value in parameters.items():
        if key in config.parameters:
            config.parameters[key].string_value = value
    return replace(model, config=config)


def _told(config: Any, field: str) -> list[str]:
    value = getattr(config, field)
    many = value if field in ("input", "output") else [value]
    return sorted(str(one) for one in many)
