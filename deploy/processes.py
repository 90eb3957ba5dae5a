"""Ports, processes and shared memory of the servers that we start."""

import os
import random
import signal
import socket
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from deploy.errors import PortBusy

LOCALHOST = "127.0.0.1"
ANY = "0.0.0.0"
"""Every address of this machine."""

SHARED_MEMORY = Path("/dev/shm")
PORTS = range(20_000, 32_000)
"""Where free ports are looked for: below the ports that Linux hands to outgoing connections."""

OUR_PREFIX = "tristage-"
"""Of the names of shared memory of every run of ours."""

SERVER_PROGRAMS = frozenset({"tritonserver", "triton_python_backend_stub"})
KILL_PATIENCE_S = 5.0


def is_free(port: int, host: str = LOCALHOST) -> bool:
    """Nobody listens on `port` of this machine's address `host`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def is_local(host: str) -> bool:
    """`host` is an address of this machine: no other can be bound."""
    try:
        with socket.socket() as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def require_free(port: int, purpose: str, host: str = LOCALHOST) -> None:
    """PortBusy unless `port` can be had: a stranger on it would answer our readiness probe."""
    if not is_free(port, host):
        raise PortBusy(
            f"port {port} ({purpose}) is in use by another process; "
            f"see `ss -ltnp 'sport = :{port}'`, or leave the port out to get a free one"
        )


def free_ports(count: int, taken: Collection[int] = ()) -> list[int]:
    """`count` different ports that are free now and not `taken`, at random so that two starts
    rarely meet."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if port not in taken and is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise PortBusy(f"no {count} free ports in {PORTS.start}..{PORTS.stop - 1}")


def start_time(pid: int) -> int | None:
    """When a live process began, in clock ticks since boot; None when it is gone or a zombie.

    With the pid it names a process for good: pids are reused (proc(5), /proc/[pid]/stat, field 22).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    state, started = fields[0], int(fields[19])
    return None if state in "ZX" else started


def servers_naming(prefix: str) -> list[int]:
    """Pids of servers and stubs on whose command line the shared-memory prefix `prefix` stands."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _names(entry, prefix):
            found.append(int(entry.name))
    return found


def _names(process: Path, prefix: str) -> bool:
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    programs = {os.path.basename(word) for word in words}
    return not programs.isdisjoint(SERVER_PROGRAMS) and any(prefix in word for word in words)


def end_leftovers(prefix: str) -> int:
    """Kill every server and stub of `prefix`, remove its shared memory; how many were killed.

    ValueError for a prefix that is none of ours: it would be found in the words of others.
    """
    if not prefix.startswith(OUR_PREFIX):
        raise ValueError(f"{prefix!r} is no prefix of a run of ours: {OUR_PREFIX}...")
    deadline = time.monotonic() + KILL_PATIENCE_S
    ended: set[int] = set()
    while (alive := _alive(servers_naming(prefix))) and time.monotonic() < deadline:
        for pid in alive:
            _kill(pid, prefix)
        ended.update(alive)
        time.sleep(0.01)
    unlink_shared_memory(prefix)
    return len(ended)


def _alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if start_time(pid) is not None]


def _kill(pid: int, prefix: str) -> None:
    """Kill `pid` if it still names `prefix`; the pidfd excludes a reused pid."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            if _names(Path(f"/proc/{pid}"), prefix):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def unlink_shared_memory(prefix: str) -> None:
    """Remove the regions in /dev/shm whose names begin with `prefix`."""
    for region in SHARED_MEMORY.glob(f"{prefix}*"):
        region.unlink(missing_ok=True)
