"""One run from the inside: every turn that is spoken passes through here."""

import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass

from gevent import GreenletExit

from loadtest.load.caller import Caller
from loadtest.load.punctuality import Punctuality, judge
from loadtest.load.records import OK, OPEN, TIMEOUT, Turn, TurnWriter
from python_backends.errors import StageError, StageFailed

RETRY_MS = 100
"""How soon a caller tries again after a failure that does not say when."""


@dataclass(frozen=True)
class Window:
    """When a run is measured, CLOCK_MONOTONIC in ns."""

    from_ns: int
    to_ns: int

    def has(self, at_ns: int) -> bool:
        """Whether a turn that is meant to start then counts."""
        return self.from_ns <= at_ns < self.to_ns


class Session:
    """Speaks turns, writes down what happened, and knows what is still open."""

    def __init__(self, caller: Caller, timeout_s: float, writer: TurnWriter | None = None) -> None:
        self.window = Window(0, 0)
        self.counts: Counter[str] = Counter()
        """Turns that ended, by outcome; those that do not count are left out."""

        self.open = 0
        self.open_counted = 0
        """Unanswered turns that were meant to start in the window."""

        self.times_ms: defaultdict[str, list[float]] = defaultdict(list)
        """Of what is measured beside turns, by name."""

        self.caller = caller
        self._timeout_ns = round(timeout_s * 1e9)
        self._writer = writer
        self._late_ms: list[float] = []
        self._loop_late_ms: list[float] = []

    def speak(self, user: int, intended_ns: int) -> tuple[Turn, float]:
        """One turn to its end, and the pause in s that its outcome asks for."""
        turn = self.begin(user, intended_ns)
        reading = self.caller.reading(turn.turn)
        turn.chunks_ns, turn.chunk_audio_ms = reading.chunks_ns, reading.chunk_audio_ms
        pause_s = 0.0
        try:
            request = self.caller.request(turn.turn, user)
            turn.sent_ns = time.monotonic_ns()
            self.caller.listen(request, reading, intended_ns + self._timeout_ns)
            turn.events = reading.events()
            turn.succeed()
        except StageError as error:
            turn.fail(error, late=time.monotonic_ns() >= intended_ns + self._timeout_ns)
            pause_s = 0.0 if turn.outcome == TIMEOUT else (error.retry_after_ms or RETRY_MS) / 1e3
            with suppress(StageFailed):
                turn.events = reading.events()
        except GreenletExit:
            turn.leave_open()
            raise
        finally:
            self.end(turn)
        return turn, pause_s

    def beat(self, late_ns: int) -> None:
        """A heartbeat that woke late by so much."""
        if self.window.has(time.monotonic_ns()):
            self._loop_late_ms.append(late_ns / 1e6)

    def settled(self) -> bool:
        """No turn is open that counts."""
        return not self.open_counted

    def punctuality(self, limit: float) -> Punctuality:
        """Whether the generator was on time."""
        return judge(self._late_ms, self._loop_late_ms, limit)

    def flush(self) -> None:
        """What has been written down reaches the disk."""
        if self._writer is not None:
            self._writer.flush()

    def note(self, name: str, ms: float) -> None:
        """A time that is no turn's own."""
        if self.window.has(time.monotonic_ns()):
            self.times_ms[name].append(ms)

    def begin(self, user: int, intended_ns: int) -> Turn:
        """A turn whose request leaves now, until `end`."""
        counted = self.window.has(intended_ns)
        self.open += 1
        self.open_counted += counted
        return Turn(self.caller.new_id(), user, intended_ns, time.monotonic_ns(), counted)

    def end(self, turn: Turn) -> None:
        """It has an outcome."""
        turn.end_ns = time.monotonic_ns()
        self.open -= 1
        self.open_counted -= turn.counted
        if turn.counted or turn.outcome == OPEN:
            self.counts[turn.outcome] += 1
        if turn.counted:
            self._late_ms.append((turn.sent_ns - turn.intended_ns) / 1e6)
        if self._writer is not None:
            self._writer.write(turn)

    @property
    def failed(self) -> int:
        """Turns that count and failed."""
        return sum(self.counts.values()) - self.counts[OK] - self.counts[OPEN]
