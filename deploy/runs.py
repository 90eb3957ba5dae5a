"""The run directory of one server: out/run-<pid>-<random>/, with a record of who owns it.

A launcher that was killed leaves its run directory, and perhaps stubs and shared memory, behind;
the next start of any server finds the record, sees that its owner is gone, and cleans up.
"""

import json
import os
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.processes import OUR_PREFIX, end_leftovers, start_time
from deploy.server_log import earlier

RECORD = "owner.json"
LOGS_KEPT = 20
LOGS_BYTES = 256 << 20
"""Of servers that have ended, all together."""

UNBORN_S = 60.0
"""A run directory without a record is being made, unless it is older than this."""


@dataclass(frozen=True)
class Owner:
    """The process that answers for a server, and the shared-memory prefix of that server."""

    pid: int
    started: int
    prefix: str

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started


def open_run(out: Path) -> tuple[Path, str]:
    """A new run directory below `out`, recorded as ours, and a shared-memory prefix of its own."""
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"run-{os.getpid()}-", dir=out))
    prefix = f"{OUR_PREFIX}{folder.name.removeprefix('run-')}-"
    started = start_time(os.getpid())
    assert started is not None
    record = Owner(os.getpid(), started, prefix)
    (folder / RECORD).write_text(json.dumps(asdict(record)))
    return folder, prefix


def close_run(folder: Path, prefix: str) -> None:
    """End whatever still runs under `prefix` and remove the run directory."""
    end_leftovers(prefix)
    shutil.rmtree(folder, ignore_errors=True)


def sweep(out: Path) -> list[str]:
    """Clean up after runs whose owner is gone; the names of their run directories."""
    swept = []
    for folder in out.glob("run-*"):
        owner = _owner(folder)
        if owner is not None and not owner.alive:
            close_run(folder, owner.prefix)
            swept.append(folder.name)
        elif owner is None and _age_s(folder) > UNBORN_S:
            shutil.rmtree(folder, ignore_errors=True)
    return swept


def alive(out: Path) -> list[tuple[Path, str]]:
    """Run directories whose owner lives, with their shared-memory prefixes."""
    found = ((folder, _owner(folder)) for folder in sorted(out.glob("run-*")))
    return [(folder, owner.prefix) for folder, owner in found if owner is not None and owner.alive]


def new_log(out: Path, name: str) -> Path:
    """A path for a server's log, kept after the run. Of servers that have ended only the newest
    logs stay: with it LOGS_KEPT, and LOGS_BYTES."""
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    running = tuple(f"-{folder.name}.log" for folder, _ in alive(out))
    ended = [path for path in logs.glob("server-*.log") if not path.name.endswith(running)]
    size = 0
    for number, path in enumerate(sorted(ended, key=_changed_at, reverse=True), 1):
        both = path, earlier(path)
        size += sum(map(_size, both))
        if number >= LOGS_KEPT or size > LOGS_BYTES:
            for one in both:
                one.unlink(missing_ok=True)
    return logs / f"server-{time.strftime('%Y%m%d-%H%M%S')}-{name}.log"


def _changed_at(path: Path) -> float:
    """0 for a log that another start has just removed."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _owner(folder: Path) -> Owner | None:
    try:
        return Owner(**json.loads((folder / RECORD).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _age_s(folder: Path) -> float:
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return 0.0
