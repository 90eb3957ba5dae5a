"""Engine files: their names, the record beside each, and whether one may be used here."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from python_backends.digests import sha256
from python_backends.tensorrt.errors import EngineUnfit


@dataclass(frozen=True)
class Place:
    """Where an engine is to run: an engine of another place is of no use."""

    library: str
    version: str
    capability: str


def engine_name(capability: str) -> str:
    """File name of an engine, as `cc_model_filenames` of configs/tensorrt.pbtxt has it."""
    return f"model-cc{capability}.plan"


def beside(engine: Path) -> Path:
    """The JSON file of an engine: what it was made of."""
    return engine.with_name(f"{engine.name}.json")


def read(engine: Path) -> dict[str, Any] | None:
    """The record of an engine; None where there is none that can be read."""
    try:
        found = json.loads(beside(engine).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def is_as_built(engine: Path, found: dict[str, Any]) -> bool:
    """The file is the one that its record tells of."""
    size = engine.stat().st_size
    return bool(found.get("bytes") == size and found.get("sha256") == sha256(engine))


def rebuild(model: str) -> str:
    """The command that builds the engine of a model again."""
    return f"python -m build tensorrt {model}"


@contextmanager
def naming(engine: Path) -> Iterator[None]:
    """An EngineUnfit inside gets the engine's name, and the command that builds it again."""
    try:
        yield
    except EngineUnfit as fault:
        model = engine.parent.parent.name
        raise EngineUnfit(
            f"{engine.name} of model {model!r}: {fault}; run: {rebuild(model)}"
        ) from fault


def require(engine: Path, place: Place, *, recorded: bool) -> None:
    """EngineUnfit unless the engine is there, as it was built, and of this place.

    Not `recorded`: an engine without a record is let through, for TensorRT to judge.
    """
    if fault := _fault(engine, place, recorded=recorded):
        raise EngineUnfit(fault)


def _fault(engine: Path, place: Place, *, recorded: bool) -> str:
    if not engine.is_file():
        return "there is no such engine"
    found = read(engine)
    if found is None:
        return "nothing says what it was made of" if recorded else ""
    if not is_as_built(engine, found):
        return "it is not the file that was built"
    built = Place(*(str(found.get(key)) for key in ("library", "version", "capability")))
    if (built.library, built.version) != (place.library, place.version):
        return f"built by {built.library} {built.version}, here is {place.library} {place.version}"
    if built.capability != place.capability:
        return f"built for compute capability {built.capability}, this GPU has {place.capability}"
    return ""
