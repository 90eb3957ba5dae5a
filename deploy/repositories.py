"""Model repositories: which models to load, and a run's own view of them."""

import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from deploy.errors import RepositoryError
from deploy.proxies import PROXY_BACKEND, proxy_config

Overrides = Mapping[str, Mapping[str, str]]
"""Model name -> parameter -> value, for one run."""

CONFIG = "config.pbtxt"
ENGINE_BACKEND = "slot_engine"
"""Its models are of no use but to whoever names them."""

DEFAULTS: Mapping[str, str] = {}
"""A proxy that needs no parameters of its own."""


@dataclass(frozen=True)
class Model:
    """One folder of a repository; `config` is an inference.ModelConfig message."""

    name: str
    folder: Path
    config_file: Path
    config: Any
    artefacts: Path | None = None
    """The version folder that is served, where it is not the newest of `folder`."""

    number: int = 0
    """The version that it is served as, where its folder is called by another."""

    @property
    def parameters(self) -> dict[str, str]:
        return {key: value.string_value for key, value in self.config.parameters.items()}

    @property
    def calls(self) -> set[str]:
        """Models this one sends requests to: steps of an ensemble, children over BLS, the ensemble
        behind a front door. Only an ensemble's steps are loaded by the server itself."""
        steps = {step.model_name for step in self.config.ensemble_scheduling.step}
        return steps.union(self._named(in_process=False))

    @property
    def opens(self) -> set[str]:
        """Models whose artefact this one runs in its own process."""
        return set(self._named(in_process=True))

    @property
    def engines(self) -> int:
        """How many times it opens them; the model itself says what is no number."""
        told = self.parameters.get("engines", "1")
        return int(told) if told.isdecimal() else 1

    @property
    def is_wiring(self) -> bool:
        """An ensemble, a front door or what takes calls: it computes nothing that is worth a place
        of its own, and calls models of its own server."""
        is_ensemble = self.config.platform == "ensemble"
        return is_ensemble or self.config.backend in ("front_door", "listening", "live_call")

    @property
    def is_proxy(self) -> bool:
        return bool(self.config.backend == PROXY_BACKEND)

    @property
    def version_folder(self) -> Path:
        """Of the version that a server loads: the newest, unless another one was chosen."""
        if self.artefacts is not None:
            return self.artefacts
        versions = [path for path in self.folder.iterdir() if path.name.isdigit()]
        return max(versions, key=lambda path: int(path.name), default=self.folder / "1")

    def as_proxy(self, parameters: Mapping[str, str] = DEFAULTS) -> "Model":
        """The same to its callers, but served elsewhere; it calls nothing here."""
        return replace(self, config=proxy_config(self.config, parameters))

    def _named(self, *, in_process: bool) -> list[str]:
        owns = self.parameters.get("engine") == "in_process"
        return [
            value
            for key, value in self.parameters.items()
            if (key == "ensemble" or key.endswith("_model"))
            and (owns and key == "step_model") == in_process
        ]


def read_models(
    repositories: Sequence[Path],
    overrides: Overrides,
    config_name: str | None = None,
    own: Sequence[Path] = (),
) -> dict[str, Model]:
    """Every model of the repositories by name, with overridden parameters. Those of `own`, a user's
    repositories, replace others of the same name."""
    models = _read_all(repositories, config_name)
    for repository in own:
        models |= _read_all([repository], config_name)
    if config_name and not any(one.config_file.parent != one.folder for one in models.values()):
        raise RepositoryError(f"no model has a configs/{config_name}.pbtxt")
    return with_overrides(models, overrides)


def _read_all(repositories: Sequence[Path], config_name: str | None) -> dict[str, Model]:
    models: dict[str, Model] = {}
    for repository in repositories:
        for config_file in sorted(repository.glob(f"*/{CONFIG}")):
            model = _read(config_file, config_name)
            if model.name in models:
                other = models[model.name].folder
                raise RepositoryError(
                    f"two models are named {model.name!r}: {other}, {model.folder}"
                )
            models[model.name] = model
    if not models:
        raise RepositoryError(f"no model in {', '.join(map(str, repositories))}")
    return models


def with_overrides(models: Mapping[str, Model], overrides: Overrides) -> dict[str, Model]:
    """The models with other parameters; RepositoryError when one has no such parameter."""
    changed = {
        name: _overridden(known(models, name), parameters) for name, parameters in overrides.items()
    }
    return {**models, **changed}


def with_proxies(
    models: Mapping[str, Model],
    elsewhere: Collection[str],
    parameters: Mapping[str, str] = DEFAULTS,
) -> dict[str, Model]:
    """The models with a proxy, of these `parameters`, for each that is served `elsewhere`."""
    return {
        name: model.as_proxy(parameters) if name in elsewhere else model
        for name, model in models.items()
    }


def to_load(models: Mapping[str, Model], roots: Sequence[str] | None = None) -> list[str]:
    """Names for --load-model: `roots` and all that they call, directly or not.

    Without roots: every model, but no engine that nobody calls, as most are opened by others in
    their own process.
    """
    if roots is None:
        opened = set().union(*(model.opens for model in models.values()))
        called = set().union(*(model.calls for model in models.values()))
        opened |= {name for name, one in models.items() if one.config.backend == ENGINE_BACKEND}
        roots = [name for name in models if name not in opened - called]
    wanted: dict[str, None] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted[name] = None
            waiting.extend(known(models, name).calls)
    return sorted(wanted)


def mirror(models: Iterable[Model], target: Path, overridden: Collection[str] = ()) -> list[Path]:
    """A run's own repositories below `target`: symlinks to the model folders; real folders with a
    config.pbtxt of their own for `overridden` ones and proxies. Stray folders beside the models
    stay out."""
    repositories: dict[Path, None] = {}
    for model in models:
        repository = target / model.folder.parent.name
        repository.mkdir(parents=True, exist_ok=True)
        repositories[repository] = None
        if model.is_proxy:
            _proxy_folder(model, repository / model.name)
        elif model.artefacts is not None:
            place(model, repository / model.name)
        elif model.name in overridden:
            _own_folder(model, repository / model.name)
        else:
            (repository / model.name).symlink_to(model.folder, target_is_directory=True)
    return list(repositories)


def place(model: Model, folder: Path) -> None:
    """A folder of a repository with one version of a model, in place of what is there."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    artefacts = model.version_folder
    version = str(model.number or artefacts.name)
    (partial / version).symlink_to(artefacts.resolve(), target_is_directory=True)
    (partial / CONFIG).write_text(text_format.MessageToString(model.config))
    remove(folder)
    partial.rename(folder)


def remove(folder: Path) -> None:
    """A model's folder, or the symlink that stands for it."""
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _read(config_file: Path, config_name: str | None) -> Model:
    folder = config_file.parent.resolve()
    chosen = folder / "configs" / f"{config_name}.pbtxt"
    path = chosen if config_name and chosen.exists() else config_file
    config = model_config_pb2.ModelConfig()
    try:
        text_format.Parse(path.read_text(), config)
    except text_format.ParseError as fault:
        raise RepositoryError(f"{path}: {fault}") from fault
    if config.name not in ("", folder.name):
        raise RepositoryError(f"{path}: names the model {config.name!r}, not {folder.name!r}")
    return Model(folder.name, folder, path, config)


def _overridden(model: Model, parameters: Mapping[str, str]) -> Model:
    config = model_config_pb2.ModelConfig()
    config.CopyFrom(model.config)
    for key, value in parameters.items():
        if key not in model.config.parameters:
            names = ", ".join(sorted(model.config.parameters))
            raise RepositoryError(f"model {model.name!r} has no parameter {key!r}; known: {names}")
        config.parameters[key].string_value = value
    return replace(model, config=config)


def known(models: Mapping[str, Model], name: str) -> Model:
    """The model; RepositoryError with the names there are."""
    if name not in models:
        raise RepositoryError(f"no model {name!r}; known: {', '.join(sorted(models))}")
    return models[name]


def _proxy_folder(model: Model, folder: Path) -> None:
    """Nothing but a config: a proxy has no artefacts, but Triton wants a version."""
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(text_format.MessageToString(model.config))


def _own_folder(model: Model, folder: Path) -> None:
    folder.mkdir()
    for entry in model.folder.iterdir():
        if entry.is_dir() and entry.name != "configs":
            (folder / entry.name).symlink_to(entry, target_is_directory=True)
        elif entry.is_dir():
            shutil.copytree(entry, folder / entry.name)
        else:
            shutil.copy(entry, folder / entry.name)
    copied = folder / model.config_file.relative_to(model.folder)
    copied.write_text(text_format.MessageToString(model.config))
