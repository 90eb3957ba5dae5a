"""The board: what the stages of one server tell each other about their running streams.

A small file in shared memory with one row a stage. Each stage writes its own row once a step; the
encoder's stall budget reads all of them. A row that its stage has not touched for a second counts
for nothing, so a dead stage does not throttle the encoder.
"""

import fcntl
import mmap
import os
import struct
import time
from pathlib import Path

from python_backends.scheduling.stall import Streams

VARIABLE = "TRISTAGE_BOARD"
DEFAULT = "/dev/shm/tristage-board"
ROWS = 64
FRESH_NS = 1_000_000_000
NAME_BYTES = 32
_ROW = struct.Struct(f"<{NAME_BYTES}s i d q")
_SIZE = ROWS * _ROW.size


class Board:
    """One process's view of the board named by TRISTAGE_BOARD, which the launcher sets."""

    def __init__(self, path: Path | None = None) -> None:
        path = path or Path(os.environ.get(VARIABLE, DEFAULT))
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            if os.fstat(self._file).st_size < _SIZE:
                os.ftruncate(self._file, _SIZE)
            self._memory = mmap.mmap(self._file, _SIZE)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def row(self, stage: str) -> "Row":
        """The row of a stage of this process, taken on first use, from a process that has ended
        where it can be. ValueError when the board is full."""
        name = _name(stage)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            for number in range(ROWS):
                found = self._memory[number * _ROW.size : number * _ROW.size + NAME_BYTES]
                if found == name or _is_free(found):
                    _ROW.pack_into(self._memory, number * _ROW.size, name, 0, 0.0, 0)
                    return Row(self._memory, number * _ROW.size, name)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        raise ValueError(f"no row left on the board for stage {stage!r}")

    def streams(self) -> list[Streams]:
        """What every live stage says of its running streams."""
        now = time.monotonic_ns()
        rows = (_ROW.unpack_from(self._memory, number * _ROW.size) for number in range(ROWS))
        return [
            Streams(running, slack_s)
            for _, running, slack_s, written_ns in rows
            if running > 0 and now - written_ns < FRESH_NS
        ]


def _name(stage: str) -> bytes:
    """A stage may have replicas, each with streams of its own."""
    owner = f"{os.getpid()}:{stage}"
    return owner.encode()[:NAME_BYTES].ljust(NAME_BYTES, b"\0")


def _is_free(name: bytes) -> bool:
    """Nobody has taken the row, or whoever did is gone."""
    owner = name.partition(b":")[0]
    return not owner.isdigit() or not Path(f"/proc/{int(owner)}").exists()


class Row:
    """A stage's own row."""

    def __init__(self, memory: mmap.mmap, offset: int, name: bytes) -> None:
        self._memory = memory
        self._offset = offset
        self._name = name

    def write(self, running: int, slack_s: float = 0.0) -> None:
        """Tell the others: this many streams run, this far ahead of playback at least."""
        _ROW.pack_into(
            self._memory, self._offset, self._name, running, slack_s, time.monotonic_ns()
        )
