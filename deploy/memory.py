"""Memory of this machine, and what processes take of it."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from deploy.processes import SHARED_MEMORY

CGROUPS = Path("/sys/fs/cgroup")


def machine_bytes(own: Path = Path("/proc/self/cgroup"), root: Path = CGROUPS) -> int:
    """What the processes of this one's cgroup may take in all: the machine's memory, or the least
    of the limits above it (cgroups(7): memory.max; of version 1 memory.limit_in_bytes)."""
    return min([int(psutil.virtual_memory().total), *_limits(own, root)])


def _limits(own: Path, root: Path) -> Iterator[int]:
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            file = "memory/memory.limit_in_bytes" if controllers else "memory.max"
            base, name = root / file.rpartition("/")[0], file.rpartition("/")[2]
            folder = base / path.lstrip("/")
            while folder.is_relative_to(base):
                with suppress(OSError, ValueError):
                    yield int((folder / name).read_text())
                if folder == base:
                    break
                folder = folder.parent


def private_bytes(pid: int) -> int:
    """The most pages that a process has had and no other one (USS), so that sums count nothing
    twice; 0 of one that has ended. Libraries and files that several have mapped are in nobody's.

    The kernel remembers the peak of all its pages (proc(5): VmHWM, VmRSS); what has gone since was
    its own, as libraries stay.
    """
    try:
        before = _pages(pid)
        private = int(psutil.Process(pid).memory_full_info().uss)
        after = _pages(pid)
    except (psutil.Error, OSError):
        return 0
    # what was freed while it was counted must not count twice
    most = max(before.get("VmRSS", 0), after.get("VmRSS", 0))
    return private + max(0, after.get("VmHWM", 0) - most)


def _pages(pid: int) -> dict[str, int]:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.findall(r"^(VmHWM|VmRSS):\s+(\d+) kB$", status, re.MULTILINE)
    return {name: 1024 * int(count) for name, count in found}


def region_bytes(pid: int, prefix: str) -> int:
    """Of the shared memory that a stub and the server pass tensors through, named on the command
    line of the stub; private to nobody, and counted to that stub."""
    try:
        words = psutil.Process(pid).cmdline()
        named = [SHARED_MEMORY / word for word in words if word.startswith(prefix)]
        return sum(region.stat().st_blocks * 512 for region in named)
    except (psutil.Error, OSError):
        return 0
