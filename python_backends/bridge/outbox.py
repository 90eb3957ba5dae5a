"""Sending responses on a thread of its own, so that a stage's loop need not wait for the server.

A response takes some tenths of a millisecond to hand over; a loop that answers many callers in one
step would stand still for all of them. Order is kept.
"""

import queue
import threading
import time
from collections.abc import Callable

from python_backends.bridge.log import log_fault

LIMIT = 8192
"""Responses that may wait; beyond, whoever answers waits."""
FULL_S = 0.001

Work = Callable[[], None]


class Outbox:
    """One thread that does what is posted, in order, until it is closed."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"{name}-outbox")
        self._thread.start()

    def post(self, work: Work) -> None:
        """Have `work` done; blocks only while too much is waiting."""
        while self._queue.qsize() >= LIMIT:
            time.sleep(FULL_S)
        self._queue.put(work)

    def close(self) -> None:
        """Do what has been posted, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception as fault:
                log_fault("sending failed", fault)


def at_once(work: Work) -> None:
    """What is used instead of an outbox where everybody may wait."""
    work()
