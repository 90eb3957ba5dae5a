"""A model's config.pbtxt as its backend sees it."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

S = TypeVar("S")


@dataclass(frozen=True)
class ModelConfig:
    """Name, folder and parameters of the model that an instance serves."""

    name: str
    repository: Path
    """The repository folder: the parent of every model's folder."""

    version: str
    parameters: Mapping[str, str]
    inputs: tuple[str, ...]

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
        """The parameters as a frozen dataclass. ValueError lists unknown and missing keys."""
        known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
        unknown = sorted(set(self.parameters) - set(known))
        needed = {name for name, field in known.items() if field.default is MISSING}
        missing = sorted(needed - set(self.parameters))
        if unknown or missing:
            raise ValueError(
                f"parameters of model {self.name!r}: unknown {unknown}, missing {missing}; "
                f"known: {sorted(known)}"
            )
        values = {
            key: _typed(key, str(known[key].type), value) for key, value in self.parameters.items()
        }
        return kind(**values)


def _typed(name: str, kind: str, value: str) -> Any:
    """`value` read as int, float, bool or str, by the name of the field's type."""
    if "bool" in kind:
        if value not in ("true", "false"):
            raise ValueError(f"parameter {name!r} is {value!r}; true or false is accepted")
        return value == "true"
    if "int" in kind:
        return int(value)
    return float(value) if "float" in kind else value
