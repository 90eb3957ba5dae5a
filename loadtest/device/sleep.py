"""Sleeping to a point in time, as exactly as the kernel can without burning a core."""

import ctypes
import threading
import time

PR_SET_TIMERSLACK = 29
"""Of prctl(2): Linux lets timers of a thread be late by 50 us unless it is told otherwise."""

_told = threading.local()


def sleep_until(end_ns: int) -> None:
    """Return at `end_ns` of CLOCK_MONOTONIC, or at once when that has passed."""
    if not hasattr(_told, "slack"):
        _told.slack = ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    while (left_ns := end_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / 1e9)


def sleep_ms(duration_ms: float) -> None:
    """Sleep for a time; not at all for 0."""
    if duration_ms > 0:
        sleep_until(time.monotonic_ns() + round(duration_ms * 1e6))
