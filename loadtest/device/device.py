"""A device that runs one task at a time, first come first served, shared by processes.

A task is a reservation: under a short file lock it is given the time from `free_at` on, and its
caller then sleeps until the end of it, without the lock. So the order is that of arrival, busy time
is exact whatever the sleepers do, and a process that dies leaves the device busy for the rest of
what it had ordered, as a real device would be; its lock dies with it.

The file is a header and a ring of fixed-size records. A task exists once `count` includes its
record, and the device is free at the end of the newest record: one store commits everything.
"""

import mmap
import os
import struct
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

from loadtest.device.lock import FileLock
from loadtest.device.sleep import sleep_until

MAGIC = 0x4445565F455453
HEADER = struct.Struct("<qqq")
"""Magic, records that the ring holds, tasks so far."""

COUNT_OFFSET = 16
COUNT = struct.Struct("<q")
STAGE_BYTES = 16
RECORD = struct.Struct(f"<{STAGE_BYTES}sqqqq")
"""Stage, members, and when it was submitted, started and ended, in ns of CLOCK_MONOTONIC."""

CAPACITY = 131_072
"""Tasks kept: some 15 minutes of a busy device."""


@dataclass(frozen=True)
class Pass:
    """When a task was submitted, and when it had the device; ns of CLOCK_MONOTONIC."""

    submitted_ns: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class DevicePass:
    """One task as the device recorded it. `device` is the name of its file."""

    device: str
    stage: str
    members: int
    submitted_ns: int
    start_ns: int
    end_ns: int


def create(path: Path, capacity: int = CAPACITY) -> None:
    """Make a new, idle device of a file; whoever has the old one open keeps that."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with partial.open("wb") as file:
        file.write(HEADER.pack(MAGIC, capacity, 0))
        file.truncate(HEADER.size + capacity * RECORD.size)
    os.replace(partial, path)


class Device:
    """One process's access to a device. Threads may share it; forked children may not."""

    def __init__(self, path: Path, *, speed: float = 1.0) -> None:
        """FileNotFoundError before `create`; ValueError when the file is no device."""
        self.name = path.name
        self._speed = speed
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.close = weakref.finalize(self, os.close, fd)
        """Give up the file; happens by itself when nobody has the device any more."""

        self._ring = _Ring(mmap.mmap(fd, 0), path)
        self._lock = FileLock(fd)

    def run(self, stage: str, members: int, cost_ms: float) -> Pass:
        """Wait for the device and for `cost_ms` / speed on it; returns when the task has ended."""
        task = self.reserve(stage, members, cost_ms)
        sleep_until(task.end_ns)
        return task

    def reserve(self, stage: str, members: int, cost_ms: float) -> Pass:
        """Submit a task without waiting for its end."""
        cost_ns = round(cost_ms * 1e6 / self._speed)
        name = stage.encode()
        if len(name) > STAGE_BYTES:
            raise ValueError(f"stage {stage!r}: a name has at most {STAGE_BYTES} bytes")
        with self._lock:
            now = time.monotonic_ns()
            start = max(now, self._ring.free_at())
            task = Pass(now, start, start + cost_ns)
            self._ring.append(name, members, task)
        return task


def read_passes(path: Path) -> list[DevicePass]:
    """The tasks that a device has recorded, oldest first, running ones included.

    ValueError when the ring has overflowed: books that lack a part are no books.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        ring = _Ring(mapped, path)
        count = ring.count()
        if count > ring.capacity:
            raise ValueError(f"{path} has recorded {count} tasks, but keeps only {ring.capacity}")
        return [ring.read(number, path.name) for number in range(count)]


def newest_pass(path: Path) -> DevicePass | None:
    """The task that was asked for last; None before the first."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        ring = _Ring(mapped, path)
        count = ring.count()
        return ring.read(count - 1, path.name) if count else None


class _Ring:
    """The file's content."""

    def __init__(self, mapped: mmap.mmap, path: Path) -> None:
        self._map = mapped
        magic, capacity, _ = HEADER.unpack_from(mapped)
        self.capacity = int(capacity)
        if magic != MAGIC or len(mapped) != HEADER.size + self.capacity * RECORD.size:
            raise ValueError(f"{path} is not an emulated device")

    def count(self) -> int:
        """Tasks so far."""
        return int(COUNT.unpack_from(self._map, COUNT_OFFSET)[0])

    def free_at(self) -> int:
        """The end of the newest task; 0 before the first."""
        count = self.count()
        return int(RECORD.unpack_from(self._map, self._offset(count - 1))[-1]) if count else 0

    def append(self, stage: bytes, members: int, task: Pass) -> None:
        """Write a record, then count it."""
        count = self.count()
        times = (task.submitted_ns, task.start_ns, task.end_ns)
        RECORD.pack_into(self._map, self._offset(count), stage, members, *times)
        COUNT.pack_into(self._map, COUNT_OFFSET, count + 1)

    def read(self, number: int, device: str) -> DevicePass:
        """One record that is in the ring."""
        stage, members, *times = RECORD.unpack_from(self._map, self._offset(number))
        return DevicePass(device, stage.rstrip(b"\0").decode(), members, *times)

    def _offset(self, number: int) -> int:
        return HEADER.size + number % self.capacity * RECORD.size
