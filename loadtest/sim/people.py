"""The people: each says the next sentence when the last answer has ended (closed loop)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from loadtest.sim.clock import Clock


@dataclass(eq=False)
class Talk:
    """One turn: when it was sent, heard first, ended; and when each of its steps ended."""

    sent: float
    first: float | None = None
    end: float | None = None
    pieces: int = 0
    """Of its answer, spoken; where an answer has several."""

    steps: dict[str, list[float]] = field(default_factory=dict)

    def stepped(self, stage: str, now: float) -> None:
        """A step of `stage` with this turn in it has ended."""
        self.steps.setdefault(stage, []).append(now)

    def gaps(self, stage: str) -> list[float]:
        """Between the ends of consecutive steps."""
        ends = self.steps.get(stage, [])
        return [later - earlier for earlier, later in pairwise(ends)]


Send = Callable[[Talk], None]


class People:
    """`count` of them, beginning evenly spread over `stagger_s`; `send` hands over a turn."""

    def __init__(self, clock: Clock, count: int, send: Send, stagger_s: float = 0.0) -> None:
        self.talks: list[Talk] = []
        self._clock = clock
        self._send = send
        for person in range(count):
            clock.at(stagger_s * person / count, self._say)

    def heard(self, talk: Talk) -> None:
        """Some sound has come."""
        if talk.first is None:
            talk.first = self._clock.now

    def answered(self, talk: Talk) -> None:
        """The answer has ended; the next sentence follows at once."""
        talk.end = self._clock.now
        self._say()

    def _say(self) -> None:
        talk = Talk(self._clock.now)
        self.talks.append(talk)
        self._send(talk)
