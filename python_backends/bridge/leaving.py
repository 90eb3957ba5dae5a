"""Callers who leave, noticed on a thread of its own.

The server has to be asked for each open request, and takes some tenths of a millisecond to answer:
on a stage's loop, everybody would wait while everybody is asked about.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from python_backends.bridge.request import Request


class Asked(Protocol):
    """Whoever waits for the answers to a request."""

    @property
    def request(self) -> Request: ...


A = TypeVar("A", bound=Asked)

ROUND_S: Final = 0.02
"""How often everybody is asked about while they are few."""

PACE_S: Final = 0.002
"""Between two questions: when they are many, a round takes longer, and the server no more work."""


class Leaving(Generic[A]):
    """Tells, on its thread, of those whose caller is gone, or of the fault that has ended it."""

    def __init__(self, tell: Callable[[A | Exception], None]) -> None:
        self._tell = tell
        self._watched: set[A] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="leaving")
        self._thread.start()

    def watch(self, one: A) -> None:
        """Until its caller leaves, or it is forgotten."""
        one.request.poll_interval_s = 0.0
        with self._changed:
            self._watched.add(one)
            self._changed.notify()

    def forget(self, one: A) -> None:
        """It is over."""
        with self._changed:
            self._watched.discard(one)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while watched := self._some():
                next_s = time.monotonic() + ROUND_S
                for one in watched:
                    self._look(one)
                time.sleep(max(0.0, next_s - time.monotonic()))
        except Exception as fault:
            self._tell(fault)

    def _look(self, one: A) -> None:
        if not self._closed:
            if one.request.cancelled:
                self.forget(one)
                self._tell(one)
            time.sleep(PACE_S)

    def _some(self) -> list[A]:
        """Everybody, once there is somebody; nobody when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._watched or self._closed)
            return [] if self._closed else list(self._watched)
