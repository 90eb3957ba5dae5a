"""Start processes from any thread, leashed to this process.

The kernel's leash (PR_SET_PDEATHSIG) is held by the thread that started the child, and a thread of
a pool may end long before its process. So whoever is not the main thread has its processes started
by one that lives as long as this process does.
"""

import os
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

Start = Callable[[], "subprocess.Popen[bytes]"]


def spawn(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> "subprocess.Popen[bytes]":
    """The command in a session of its own: Ctrl-C at the terminal reaches only us. It appends to
    the log, so that this may be cut while it runs."""

    def start() -> "subprocess.Popen[bytes]":
        with log.open("ab") as kept:
            return subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=kept,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    if threading.current_thread() is threading.main_thread():
        return start()
    return _spawner().run(start)


class _Spawner:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self._waiting: queue.SimpleQueue[tuple[Start, Future[subprocess.Popen[bytes]]]] = (
            queue.SimpleQueue()
        )
        threading.Thread(target=self._serve, name="spawner", daemon=True).start()

    def run(self, start: Start) -> "subprocess.Popen[bytes]":
        done: Future[subprocess.Popen[bytes]] = Future()
        self._waiting.put((start, done))
        return done.result()

    def _serve(self) -> None:
        while True:
            start, done = self._waiting.get()
            try:
                done.set_result(start())
            except BaseException as fault:
                done.set_exception(fault)


_lock = threading.Lock()
_shared: _Spawner | None = None


def _spawner() -> _Spawner:
    """The one of this process; a forked child has none of its parent's threads."""
    global _shared
    with _lock:
        if _shared is None or _shared.pid != os.getpid():
            _shared = _Spawner()
        return _shared
