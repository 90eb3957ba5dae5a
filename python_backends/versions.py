"""Two versions of a stage beside each other: how their models are called, and which one serves.

A version that is brought in while the server runs is a model of its own, `think.v2` beside `think`:
its own process, config and KV, loaded, watched and unloaded without touching the other. Triton's
own versions share a config, and a load that changes anything loads all of them again.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

VARIABLE: Final = "TRISTAGE_VERSIONS"
"""Of the environment: the file that says which model serves each stage."""

_VERSIONED: Final = re.compile(r"(?P<stage>.+)\.v(?P<version>\d+)")


def model_of(stage: str, version: int) -> str:
    """The model that is a version of a stage, or of a model that the stage calls."""
    return f"{stage}.v{version}"


def stage_of(model: str) -> str:
    """Of which stage a model is a version; a model without a version is its own."""
    found = _VERSIONED.fullmatch(model)
    return found["stage"] if found else model


def version_of(model: str) -> str:
    """Which version a model is; empty for one that the server was started with."""
    found = _VERSIONED.fullmatch(model)
    return found["version"] if found else ""


@dataclass(frozen=True)
class Serving:
    """Which model serves each stage that is not served by the one of its own name. `epoch` grows
    with every change: all that begins from one on sees all of it."""

    epoch: int = 0
    models: Mapping[str, str] = field(default_factory=dict)

    def model(self, stage: str) -> str:
        """The model that serves a stage."""
        return self.models.get(stage, stage)

    def names(self, stages: Iterable[str]) -> tuple[str, ...]:
        """The models that serve these stages."""
        return tuple(map(self.model, stages))

    @classmethod
    def read(cls, path: Path) -> "Serving":
        """From a file; OSError or ValueError when that is not possible."""
        match json.loads(path.read_text()):
            case {"epoch": int(epoch), "models": dict(models)}:
                return cls(epoch, {str(stage): str(model) for stage, model in models.items()})
            case _:
                raise ValueError(f"{path} does not say which model serves which stage")

    def write(self, path: Path) -> None:
        """To a file that is read by others meanwhile: they see all of it or nothing."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"epoch": self.epoch, "models": dict(self.models)}))
        os.replace(partial, path)
