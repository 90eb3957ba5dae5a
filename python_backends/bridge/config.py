"""A model's config.pbtxt as its backend sees it."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from python_backends.declared import PREFIX, Declared
from python_backends.versions import stage_of

S = TypeVar("S")
FIRST = "1"
"""Version of a model that has only one."""


@dataclass(frozen=True)
class ModelConfig:
    """Name, folder and parameters of the model that an instance serves."""

    name: str
    repository: Path
    """The repository folder: the parent of every model's folder."""

    version: str
    parameters: Mapping[str, str]
    inputs: tuple[str, ...]

    @property
    def stage(self) -> str:
        """What it tells of itself as: `think`, also as the model `think.v2`."""
        return stage_of(self.name)

    @property
    def told_version(self) -> str:
        """What it tells of its version: nothing of the first."""
        return "" if self.version == FIRST else self.version

    @classmethod
    def from_args(cls, args: Mapping[str, str]) -> "ModelConfig":
        """From the dict given to `initialize()`. ValueError unless there is exactly one instance:
        a second one would be a second process with a queue of its own."""
        config = json.loads(args["model_config"])
        count = sum(group["count"] for group in config["instance_group"])
        if count != 1:
            raise ValueError(
                f"model {config['name']!r} keeps its own queue, so its instance_group count must "
                f"be 1, not {count}; scale it by engines, not by instances"
            )
        return cls(
            name=config["name"],
            repository=Path(args["model_repository"]).parent,
            version=args["model_version"],
            parameters={key: v["string_value"] for key, v in config["parameters"].items()},
            inputs=tuple(tensor["name"] for tensor in config["input"]),
        )

    def artefact(self, file: str, *, model: str | None = None) -> Path:
        """A file in this model's version folder, or in that of a neighbour."""
        return self.repository / (model or self.name) / self.version / file

    def settings(self, kind: type[S]) -> S:
        """The parameters as a frozen dataclass of bool, int, float and str fields, but those of
        `declared`.

        ValueError lists unknown and missing keys, or names the one that cannot be read.
        """
        given = {key: text for key, text in self.parameters.items() if not key.startswith(PREFIX)}
        known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
        unknown = sorted(set(given) - set(known))
        needed = {name for name, field in known.items() if _is_needed(field)}
        missing = sorted(needed - set(given))
        if unknown or missing:
            raise ValueError(
                f"parameters of model {self.name!r}: unknown {unknown}, missing {missing}; "
                f"known: {sorted(known)}"
            )
        types = get_type_hints(kind)
        return kind(**{key: _read(key, types[key], text) for key, text in given.items()})

    @property
    def declared(self) -> Declared:
        """The bytes it declares; see there. Nothing declared: no part is bounded."""
        try:
            return Declared.of(self.parameters) or Declared()
        except ValueError as fault:
            raise ValueError(f"model {self.name!r}: {fault}") from fault


def _is_needed(field: "Field[Any]") -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _read(name: str, kind: type, value: str) -> bool | int | float | str:
    """`value` as `kind`; ValueError names the parameter."""
    try:
        return _READERS[kind](value)
    except ValueError as fault:
        raise ValueError(f"parameter {name!r} is {value!r}, not {kind.__name__}") from fault


def _bool(value: str) -> bool:
    if value not in ("true", "false"):
        raise ValueError(value)
    return value == "true"


def _float(value: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number


_READERS: dict[type, Callable[[str], bool | int | float | str]] = {
    bool: _bool,
    int: int,
    float: _float,
    str: str,
}
