"""Who is let in, for two threads: the server's, on which a turn is refused without waiting for what
the door's loop is busy with, and the loop's, which begins turns and ends them."""

import math
import threading
from collections.abc import Callable

from python_backends.bridge import Request
from python_backends.errors import Overloaded
from python_backends.front_door.settings import DoorSettings
from python_backends.front_door.turn import Turn
from python_backends.scheduling.admission import Admission, Refusal

WHY = {
    "queue": "{ahead} turns wait for a place; at most {most} may",
    "caller": "too many turns of this caller wait; half of the places are one caller's at most",
    "deadline": "at the present rate the answer would come after its deadline; {ahead} turns wait",
    "stage": "a stage has no room for more turns",
    "draining": "the server is being stopped, or its front door started again; no turns are taken",
}


class Entry:
    """See Admission; `clock` is in s."""

    def __init__(self, settings: DoorSettings, clock: Callable[[], float]) -> None:
        self._admission: Admission[Turn] = Admission(
            most_open=settings.max_turns, most_waiting=settings.max_waiting
        )
        self._most_waiting = settings.max_waiting
        self._clock = clock
        self._lock = threading.Lock()
        self._offered: dict[Request, Turn] = {}
        """Those of which the loop has not heard yet."""

    def offer(self, request: Request) -> None:
        """Let a turn wait; Overloaded where it may not, InvalidInput when it is none."""
        turn = Turn(request)
        try:
            with self._lock:
                self._admission.offer(
                    turn, self._clock(), caller=turn.caller, deadline_s=turn.deadline_s
                )
                self._offered[request] = turn
        except Refusal as refusal:
            raise Overloaded(
                WHY[refusal.reason].format(ahead=refusal.ahead, most=self._most_waiting),
                stage=refusal.stage,
                reason=refusal.reason,
                retry_after_ms=math.ceil(1000 * refusal.retry_after_s),
            ) from None

    def take(self, request: Request) -> Turn | None:
        """The turn of a request that was offered, once."""
        with self._lock:
            return self._offered.pop(request, None)

    def waits(self, turn: Turn) -> bool:
        """It has neither begun nor left."""
        with self._lock:
            return self._admission.waits(turn)

    def begin(self) -> list[Turn]:
        """Those who may begin now, in order."""
        with self._lock:
            return list(self._admission.begin(self._clock()))

    def late(self) -> list[Turn]:
        """Those who wait and cannot be answered in time any more; they leave."""
        with self._lock:
            return self._admission.late(self._clock())

    def late_in_s(self) -> float:
        """When `late` will have one; infinity when nobody waits for anything."""
        with self._lock:
            now = self._clock()
            return self._admission.next_deadline(now) - now

    def end(self, turn: Turn, *, served: bool) -> None:
        """It is over, wherever it was."""
        with self._lock:
            self._admission.end(turn, self._clock(), served=served)

    def stage_is_full(self, stage: str, for_s: float) -> None:
        """Nobody is let in for so long, only to be refused there."""
        with self._lock:
            self._admission.stage_is_full(stage, self._clock() + for_s)

    def close(self) -> None:
        """Nobody else is taken; who is here is served."""
        with self._lock:
            self._admission.draining = True

    def count(self) -> tuple[int, int]:
        """Turns at work, and turns that wait."""
        with self._lock:
            return self._admission.open, self._admission.waiting
