"""What an engine was made of, beside it as JSON; from it `fault` tells whether it may be used."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from build.fetch import replacing
from python_backends.digests import sha256
from python_backends.tensorrt.record import beside, engine_name, is_as_built, read, rebuild

__all__ = ["Key", "beside", "engine_name", "fault", "kept_name", "read", "write"]

BUILDER_VERSION = 1
"""Raised when engines must be built again although nothing below has changed."""


@dataclass(frozen=True)
class Key:
    """All that decides whether an engine is the one that is needed here."""

    model: str
    graph_sha256: str
    precision: str
    profiles: list[dict[str, list[list[int]]]]
    library: str
    version: str
    capability: str
    builder: int = BUILDER_VERSION


_NAMES = {
    "graph_sha256": "the graph",
    "precision": "the precision",
    "profiles": "the profiles",
    "library": "the kind of TensorRT",
    "version": "TensorRT",
    "capability": "the GPU's compute capability",
    "builder": "the builder",
}


def kept_name(key: Key) -> str:
    """File name in the cache: engines of several GPUs and versions lie beside each other."""
    return f"{key.library}{key.version}-cc{key.capability}-{key.precision}.plan"


def write(engine: Path, key: Key, facts: dict[str, Any]) -> None:
    """Put the record of an engine beside it; `facts`: more that is worth knowing."""
    told = asdict(key) | {
        "sha256": sha256(engine),
        "bytes": engine.stat().st_size,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with replacing(beside(engine)) as partial:
        partial.write_text(json.dumps(told | facts, indent=1) + "\n")


def fault(engine: Path, key: Key) -> str | None:
    """Why an engine must not be used, with the command that mends it; None: it may be."""
    reason = _fault(engine, key)
    return reason and f"{engine}: {reason}. Rebuild: {rebuild(key.model)}"


def _fault(engine: Path, key: Key) -> str | None:
    if not engine.is_file():
        return "there is no such engine"
    found = read(engine)
    if found is None:
        return "nothing says what it was made of"
    if not is_as_built(engine, found):
        return "it is not the file that was built"
    differ = [_difference(name, found.get(name), needed) for name, needed in asdict(key).items()]
    stale = [text for text in differ if text]
    return f"stale: {', '.join(stale)}" if stale else None


def _difference(name: str, built: Any, needed: Any) -> str:
    if built == needed:
        return ""
    short = isinstance(built, str) and isinstance(needed, str) and name != "graph_sha256"
    told = f" was {built}, is {needed}" if short else " has changed"
    return f"{_NAMES.get(name, name)}{told}"
