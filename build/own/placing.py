"""A repository of models that replace ours: their configs, artefacts and where they came from."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import onnx
from google.protobuf import text_format

from build.artifact import REPOSITORY
from build.contract import read_config
from build.fetch import replacing
from python_backends.digests import sha256

SPARE: Final = 1.1
"""A declared byte budget over what was measured: `deploy bytes` calls 0.7 to 1 right."""

MIB: Final = 2**20
PROTOBUF_MOST: Final = 2**31 - 2**20
"""Bytes of a graph beyond which its weights are written to a file beside it."""

TOOLS: Final = ("torch", "onnx", "onnxruntime")
HEADER: Final = "# Made by {command}.\n# Of {source}.\n"

Parameters = Mapping[str, str | int]
Dims = Mapping[str, Sequence[int]]


class Place:
    """One model of the repository `into`, made after ours of the same name."""

    def __init__(self, into: Path, name: str) -> None:
        self.name = name
        self.folder = into / name
        self.version = self.folder / "1"
        self.version.mkdir(parents=True, exist_ok=True)

    def configure(self, parameters: Parameters, dims: Dims, *, command: str, source: Path) -> None:
        """Its config.pbtxt: ours with other parameters, and other dimensions of some tensors."""
        config = read_config(REPOSITORY / self.name / "config.pbtxt")
        for key, value in parameters.items():
            config.parameters[key].string_value = str(value)
        for tensor in (*config.input, *config.output):
            if tensor.name in dims:
                tensor.dims[:] = dims[tensor.name]
        told = HEADER.format(command=command, source=source.resolve())
        (self.folder / "config.pbtxt").write_text(told + text_format.MessageToString(config))

    def write(self, name: str, text: str) -> None:
        """A small artefact."""
        with replacing(self.version / name) as partial:
            partial.write_text(text)

    def take(self, trial: Path) -> None:
        """The files of the folder `trial`, known to be right, in place of what is here."""
        new = sorted(trial.iterdir())
        for file in new:
            file.replace(self.version / file.name)
        for old in set(self.version.iterdir()) - {self.version / file.name for file in new}:
            old.unlink()

    def copy(self, source: Path) -> None:
        """An artefact of the same name."""
        with replacing(self.version / source.name) as partial:
            partial.write_bytes(source.read_bytes())


def save_graph(model: onnx.ModelProto, path: Path) -> None:
    """In one file, or with its weights in `path`.data where that is too large for one."""
    if sum(len(one.raw_data) for one in model.graph.initializer) <= PROTOBUF_MOST:
        onnx.save(model, path)
    else:
        beside = path.with_name(f"{path.name}.data")
        onnx.save(model, path, save_as_external_data=True, location=beside.name)
        beside.chmod(path.stat().st_mode)  # onnx lets nobody else read it


def write_provenance(path: Path, sources: Iterable[Path], facts: Mapping[str, Any]) -> None:
    """What the models of a repository were made of."""
    told = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "tools": {name: version(name) for name in TOOLS},
        "sources": {str(one): sha256(one) for one in sources},
        **facts,
    }
    path.write_text(json.dumps(told, indent=1) + "\n")


def mebibytes(count: float) -> str:
    """A byte budget for so many bytes, with some to spare."""
    return f"{-(-round(count * SPARE) // MIB)}MiB"
