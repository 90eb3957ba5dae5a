"""A run's folder: made before the run, completed after it with what others recorded."""

import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loadtest.device import read_passes
from loadtest.load.spec import RunSpec

RUN = "run.json"
SPEC = "spec.json"
GENERATOR = "generator.json"
LOG = "generator.log"


def prepare(spec: RunSpec) -> Path:
    """An empty folder with the spec in it; a former run of this name goes.

    FileExistsError when what is there is no run.
    """
    folder = spec.folder.resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / SPEC).exists():
        raise FileExistsError(f"{folder} is not a run of ours; it is left alone")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / SPEC).write_text(spec.to_json())
    return folder


def complete(spec: RunSpec, folder: Path) -> None:
    """Add device.jsonl, spans/ and, last, run.json."""
    facts = json.loads((folder / GENERATOR).read_text())
    emulation = json.loads(spec.emulation.read_text()) if spec.emulation else {}
    since_ns, until_ns = facts["started_ns"], facts["ended_ns"]
    _write_lines(folder / "device.jsonl", _passes(emulation, since_ns, until_ns))
    if emulation.get("spans"):
        _copy_spans(Path(emulation["spans"]), folder / "spans", since_ns, until_ns)
    partial = folder / f"{RUN}.partial"
    partial.write_text(json.dumps(_run_facts(spec, emulation) | facts, indent=1, default=str))
    os.replace(partial, folder / RUN)


def _run_facts(spec: RunSpec, emulation: Mapping[str, Any]) -> dict[str, Any]:
    """What is known without the generator; `emulated` says that no weights computed."""
    told = asdict(spec)
    for name in ("out", "emulation"):
        told.pop(name)
    told["emulated"] = spec.emulated
    told["profile"] = emulation.get("profile", {})
    told["emulation"] = emulation
    told["machine"] = {
        "cpus": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }
    return told


def _passes(
    emulation: Mapping[str, Any], since_ns: int, until_ns: int
) -> Iterator[Mapping[str, Any]]:
    for path in sorted(set(emulation.get("devices", {}).values())):
        for one in read_passes(Path(path)):
            if one.end_ns >= since_ns and one.start_ns <= until_ns:
                yield asdict(one)


def _copy_spans(source: Path, target: Path, since_ns: int, until_ns: int) -> None:
    """Those of this run: the stages' processes outlive it, and may be writing now."""
    target.mkdir()
    for path in sorted(source.glob("*.jsonl")):
        spans = (json.loads(line) for line in path.read_text().splitlines(True) if line[-1] == "\n")
        here = (one for one in spans if one["end_ns"] >= since_ns and one["start_ns"] <= until_ns)
        _write_lines(target / path.name, here)


def _write_lines(path: Path, entries: Iterator[Mapping[str, Any]]) -> None:
    with path.open("w") as file:
        for entry in entries:
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")
