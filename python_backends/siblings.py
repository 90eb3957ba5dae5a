"""The processes that serve models of one Triton server: its Python stubs, found in /proc (proc(5)).

The server itself tells nobody that one has died.
"""

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
STUB: Final = b"triton_python_backend_stub"
PARENT_FIELD: Final = 1
START_FIELD: Final = 19
"""Of /proc/<pid>/stat, counted behind the name."""


def stubs(server: int, models: Collection[str], proc: Path = PROC) -> list[tuple[str, int]]:
    """Model and pid of every stub that serves one of `models` under the server with this pid."""
    found = []
    for folder in _children(server, proc):
        model = _served(_read(folder / "cmdline").split(b"\0"), models)
        if model is not None:
            found.append((model, int(folder.name)))
    return found


def started_s(pid: int, proc: Path = PROC) -> float:
    """When a process began, as CLOCK_BOOTTIME tells it, to 10 ms; infinity if it has ended."""
    fields = _stat(proc / str(pid))
    return int(fields[START_FIELD]) / os.sysconf("SC_CLK_TCK") if fields else float("inf")


def _children(parent: int, proc: Path) -> Iterator[Path]:
    for folder in proc.iterdir():
        if folder.name.isdigit():
            fields = _stat(folder)
            if fields and fields[0] not in b"ZX" and int(fields[PARENT_FIELD]) == parent:
                yield folder


def _stat(folder: Path) -> list[bytes]:
    """What follows the name; nothing of a process that has ended meanwhile."""
    return _read(folder / "stat").rpartition(b")")[2].split()


def _read(path: Path) -> bytes:
    """Nothing of a process that has ended meanwhile."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _served(command: list[bytes], models: Collection[str]) -> str | None:
    """The name of an instance stands on its command line: the model's, and one or two numbers."""
    if STUB not in command[0]:
        return None
    words = (word.decode(errors="replace") for word in command[1:])
    instances = (re.fullmatch(r"(.+?)(?:_\d+){1,2}", word) for word in words)
    return next((one[1] for one in instances if one and one[1] in models), None)
