"""What the emulated device itself costs, on this machine.

* lock: a reservation of no length, one process alone, and several at once;
* overshoot: how much later than its end a task returns to its caller;
* idle: time between the tasks of one caller that submits the next one at once.
"""

import multiprocessing
import os
import platform
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from loadtest.device.device import Device, create, read_passes

ROUNDS = 2000
PASSES = 300
PASS_MS = 5.0
PROCESSES = 3


def summary(values_us: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and maximum, in microseconds."""
    ordered = sorted(values_us)
    p95 = ordered[int(0.95 * (len(ordered) - 1))]
    return {
        "p50_us": round(median(ordered), 1),
        "p95_us": round(p95, 1),
        "max_us": round(ordered[-1], 1),
    }


def lock_us(path: Path, rounds: int) -> list[float]:
    """What each of `rounds` reservations takes."""
    device = Device(path)
    taken = []
    for _ in range(rounds):
        start_ns = time.monotonic_ns()
        device.reserve("lock", 1, 0.0)
        taken.append((time.monotonic_ns() - start_ns) / 1e3)
    device.close()
    return taken


def contended_lock_us(path: Path, rounds: int, processes: int) -> list[float]:
    """The same while so many processes do it without a pause."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        found = pool.starmap(lock_us, [(path, rounds)] * processes)
    return [one for many in found for one in many]


def pass_us(path: Path, passes: int) -> tuple[list[float], list[float]]:
    """(overshoot of every pass, idle time before every pass but the first)."""
    device = Device(path)
    late = []
    for _ in range(passes):
        done = device.run("pass", 1, PASS_MS)
        late.append((time.monotonic_ns() - done.end_ns) / 1e3)
    device.close()
    made = read_passes(path)[-passes:]
    idle = [(after.start_ns - before.end_ns) / 1e3 for before, after in pairwise(made)]
    return late, idle


def measure(folder: Path) -> dict[str, Any]:
    """All of it, on devices of its own in `folder`."""
    locks, passes = folder / "lock.dev", folder / "pass.dev"
    create(locks)
    create(passes)
    alone = lock_us(locks, ROUNDS)
    together = contended_lock_us(locks, ROUNDS, PROCESSES)
    late, idle = pass_us(passes, PASSES)
    return {
        "emulated device": True,
        "lock_alone": summary(alone),
        f"lock_{PROCESSES}_processes": summary(together),
        "overshoot": summary(late),
        f"idle_between_passes_of_{PASS_MS:g}_ms": summary(idle),
        "machine": {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "os": platform.release()},
    }
