"""Progress in one line."""

import sys
import threading

PASSING = ("loading models", "first inference", "waiting for")
"""Steps on the way: at a terminal the next line takes their place."""


class Line:
    """At a terminal, steps on the way share a line; elsewhere every step has its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        with self._lock:
            if sys.stderr.isatty():
                end = "" if any(step in text for step in PASSING) else "\n"
                print(f"\r\033[K{text}", end=end, file=sys.stderr, flush=True)
            else:
                print(text, file=sys.stderr, flush=True)
