"""Callers who leave, noticed on a thread of its own.

The server has to be asked for each open request, and takes some tenths of a millisecond to answer:
on the door's loop, everybody would wait while everybody is asked about.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from python_backends.front_door.turn import Turn

ROUND_S: Final = 0.02
"""How often everybody is asked about while they are few."""

PACE_S: Final = 0.002
"""Between two questions: when they are many, a round takes longer, and the server no more work."""


class Leaving:
    """Tells, on its thread, of turns whose caller is gone, or of the fault that has ended it."""

    def __init__(self, tell: Callable[[Turn | Exception], None]) -> None:
        self._tell = tell
        self._turns: set[Turn] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="leaving")
        self._thread.start()

    def watch(self, turn: Turn) -> None:
        """Until it leaves or is forgotten."""
        turn.request.poll_interval_s = 0.0
        with self._changed:
            self._turns.add(turn)
            self._changed.notify()

    def forget(self, turn: Turn) -> None:
        """It is over."""
        with self._changed:
            self._turns.discard(turn)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while turns := self._some():
                next_s = time.monotonic() + ROUND_S
                for turn in turns:
                    self._look(turn)
                time.sleep(max(0.0, next_s - time.monotonic()))
        except Exception as fault:
            self._tell(fault)

    def _look(self, turn: Turn) -> None:
        if not self._closed:
            if turn.request.cancelled:
                self.forget(turn)
                self._tell(turn)
            time.sleep(PACE_S)

    def _some(self) -> list[Turn]:
        """Everybody, once there is somebody; nobody when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._turns or self._closed)
            return [] if self._closed else list(self._turns)
