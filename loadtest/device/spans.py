"""What host threads did and when, as JSON lines, one file a process."""

import json
import os
import threading
import weakref
from pathlib import Path

LIMIT = 200_000
"""Lines a process writes at most; some 25 MB."""


class SpanLog:
    """Appends spans of one stage to <folder>/<stage>-<pid>.jsonl; safe for threads.

    Every line is written at once, so that a killed process loses none.
    """

    def __init__(self, folder: str, stage: str, device: str = "") -> None:
        """An empty `folder` makes a log that keeps nothing; `device`: whose host work it is."""
        self._about = {"stage": stage} | ({"device": device} if device else {})
        self._left = LIMIT if folder else 0
        self._lock = threading.Lock()
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            path = Path(folder) / f"{stage}-{os.getpid()}.jsonl"
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            weakref.finalize(self, os.close, self._fd)

    def write(self, what: str, start_ns: int, end_ns: int, members: int) -> None:
        """One span; ignored once LIMIT is reached."""
        with self._lock:
            if self._left <= 0:
                return
            self._left -= 1
            times = {"what": what, "start_ns": start_ns, "end_ns": end_ns, "members": members}
            os.write(self._fd, json.dumps(self._about | times).encode() + b"\n")
