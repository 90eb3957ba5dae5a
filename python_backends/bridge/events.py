"""EVENTS: what happened to a turn, one JSON object a span, appended by each stage it passes."""

import json
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def now_ns() -> int:
    """The clock of all spans: CLOCK_MONOTONIC in ns, the same for every process of a machine."""
    return time.monotonic_ns()


@cache
def host() -> str:
    """Whose clock that is: a machine, which of its boots, and the time namespace (a container may
    have one of its own)."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    clock = Path("/proc/self/ns/time")
    return f"{boot} {clock.readlink()}" if clock.is_symlink() else boot


def span(
    stage: str, turn: str, what: str, start_ns: int, end_ns: int, *, piece: int = 0, **more: Any
) -> bytes:
    """One entry of EVENTS; `more` is free-form.

    `what` is "queue", "build", "gather", "first_token", "compute", "relay", or "clock".
    """
    entry = {
        "stage": stage,
        "turn": turn,
        "piece": piece,
        "what": what,
        "start_ns": start_ns,
        "end_ns": end_ns,
        **more,
    }
    return json.dumps(entry, separators=(",", ":")).encode()


def clock(stage: str) -> NDArray[np.object_]:
    """EVENTS [1, 1] that tells the time of this machine, and which machine it is."""
    now = now_ns()
    return appended(None, span(stage, "", "clock", now, now, host=host()))


def appended(events: NDArray[np.object_] | None, *spans: bytes) -> NDArray[np.object_]:
    """EVENTS [1, n] with `spans` behind it, [1, n + len(spans)]."""
    before: Sequence[bytes] = [] if events is None else list(events.reshape(-1))
    return np.array([[*before, *spans]], dtype=np.object_)


def turn_of(events: NDArray[np.object_] | None) -> str:
    """The turn id that the first stage wrote; empty when there are no events."""
    if events is None or not events.size:
        return ""
    try:
        entry = json.loads(events.reshape(-1)[0])
    except (ValueError, RecursionError):
        return ""
    turn = entry.get("turn") if isinstance(entry, dict) else None
    return turn if isinstance(turn, str) else ""
