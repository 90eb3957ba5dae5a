"""The steps of a loop in a file: written by the server's task, read by whoever measures."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

VARIABLE = "TRISTAGE_STEP_TRACE"
"""Environment variable of a server: the file that its steps are appended to."""

_RECORD = struct.Struct("=qq")


def writer() -> Callable[[int, int], None]:
    """Appends (ns, tokens drawn) to the file of VARIABLE; two microseconds each."""
    file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    return lambda at_ns, drawn: _append(file, at_ns, drawn)


def read(trace: Path, skip: int = 0) -> list[tuple[int, int]]:
    """(ns, tokens drawn) of every step behind the first `skip` bytes."""
    return [(at_ns, drawn) for at_ns, drawn in _RECORD.iter_unpack(trace.read_bytes()[skip:])]


def _append(file: int, at_ns: int, drawn: int) -> None:
    os.write(file, _RECORD.pack(at_ns, drawn))
