"""When somebody begins to speak and has finished, told the probability of speech in each window.

Silence ends a turn. How much of it depends on what was said so far: little behind a question or a
word of thanks, more behind another sentence, more while nothing is known, much behind words that
hang in the air ("and a"). Whoever went on behind a sentence is waited for the next time; whoever
searched for a word in the middle of one has only shown that the words told so. Times are positions
in the caller's sound, in s; nothing here depends on when it arrived.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

EndReason = Literal["silence", "length", "gap", "closed"]
"""Silence; the longest turn that is taken; no sound came for too long; the call is over."""


class Manner(Enum):
    """How what was said so far ends."""

    UNKNOWN = auto()
    CLOSED = auto()
    """It asks for an answer: a question, a "please", a "that's all"."""

    COMPLETE = auto()
    """A sentence, behind which there may be another."""

    HANGING = auto()


@dataclass(frozen=True)
class EndpointSettings:
    """All in s but the two probabilities."""

    window_s: float = 0.032
    begin_at: float = 0.5
    """Speech, where nobody speaks."""

    stay_at: float = 0.35
    """Still speech, where somebody does."""

    begin_s: float = 0.096
    """So much speech of the last `begin_within_s` begins a turn: a click is none."""

    begin_within_s: float = 0.16
    settle_s: float = 0.2
    """A pause in which what was said is worth looking at."""

    closed_s: float = 0.4
    complete_s: float = 0.6
    unknown_s: float = 0.8
    hanging_s: float = 1.5
    habit: float = 1.25
    """A pause that did not hang and that was gone on after, times this, is waited for from then on,
    except behind what is closed."""

    longest_s: float = 30.0
    """A turn that is longer ends where it is."""

    def __post_init__(self) -> None:
        if not 0 < self.stay_at <= self.begin_at < 1:
            raise ValueError("0 < stay_at <= begin_at < 1 is accepted")
        if not 0 < self.window_s <= self.begin_s <= self.begin_within_s:
            raise ValueError("0 < window_s <= begin_s <= begin_within_s is accepted")
        waits = (self.settle_s, self.closed_s, self.complete_s, self.unknown_s, self.hanging_s)
        if self.settle_s <= 0 or list(waits) != sorted(waits):
            raise ValueError(
                "0 < settle_s <= closed_s <= complete_s <= unknown_s <= hanging_s is accepted"
            )
        if self.longest_s <= self.hanging_s or self.habit < 1:
            raise ValueError("longest_s must exceed hanging_s, and habit must be at least 1")


@dataclass(frozen=True)
class Began:
    """Somebody speaks, since `at_s`."""

    at_s: float


@dataclass(frozen=True)
class Settled:
    """A pause, since `at_s`: the turn may have ended there."""

    at_s: float


@dataclass(frozen=True)
class WentOn:
    """It had not: there is speech again."""

    at_s: float


@dataclass(frozen=True)
class Finished:
    """The turn is over: speech from `began_s` to `ended_s`, and `waited_s` of silence behind it."""

    began_s: float
    ended_s: float
    waited_s: float
    reason: EndReason


Heard = Began | Settled | WentOn | Finished


class Endpoint:
    """Follows one caller."""

    def __init__(self, settings: EndpointSettings | None = None) -> None:
        self.settings = settings or EndpointSettings()
        self.at_s = 0.0
        """How far it has listened."""

        self._recent: deque[bool] = deque(maxlen=self._windows(self.settings.begin_within_s))
        self._speaking = self._settled = False
        self._began_s = self._ended_s = 0.0
        self._manner = Manner.UNKNOWN
        self._habit_s = 0.0

    @property
    def speaking(self) -> bool:
        """A turn is under way."""
        return self._speaking

    @property
    def spoken_s(self) -> float:
        """How long the turn under way is, up to its last speech."""
        return self._ended_s - self._began_s if self._speaking else 0.0

    @property
    def patience_s(self) -> float:
        """The silence that would end the turn now."""
        known = self.settings
        match self._manner:
            case Manner.CLOSED:
                return known.closed_s
            case Manner.HANGING:
                return known.hanging_s
            case Manner.COMPLETE:
                least_s = known.complete_s
            case Manner.UNKNOWN:
                least_s = known.unknown_s
        return max(least_s, min(self._habit_s, known.hanging_s))

    def judge(self, manner: Manner) -> None:
        """What was said up to the pause ends so. Ignored once it has gone on."""
        if self._settled:
            self._manner = manner

    def hear(self, probability: float) -> list[Heard]:
        """One window more; what follows from it, in order."""
        self.at_s += self.settings.window_s
        threshold = self.settings.stay_at if self._speaking else self.settings.begin_at
        is_speech = probability >= threshold
        return self._go_on(is_speech) if self._speaking else self._wait(is_speech)

    def finish(self, reason: EndReason) -> list[Heard]:
        """No more sound comes: end the turn, if one is under way."""
        return [self._end(reason)] if self._speaking else []

    def _wait(self, is_speech: bool) -> list[Heard]:
        self._recent.append(is_speech)
        if sum(self._recent) < self._windows(self.settings.begin_s):
            return []
        first = self._recent.index(True)
        self._began_s = self.at_s - (len(self._recent) - first) * self.settings.window_s
        self._ended_s = self.at_s
        self._speaking, self._settled, self._manner = True, False, Manner.UNKNOWN
        self._recent.clear()
        return [Began(self._began_s)]

    def _go_on(self, is_speech: bool) -> list[Heard]:
        news = self._speak() if is_speech else self._pause()
        if self._speaking and self.at_s - self._began_s >= self.settings.longest_s - 1e-9:
            news.append(self._end("length"))
        return news

    def _speak(self) -> list[Heard]:
        pause_s = self.at_s - self.settings.window_s - self._ended_s
        self._ended_s = self.at_s
        if not self._settled:
            return []
        if self._manner is not Manner.HANGING:
            self._habit_s = max(self._habit_s, self.settings.habit * pause_s)
        self._settled, self._manner = False, Manner.UNKNOWN
        return [WentOn(self.at_s - self.settings.window_s)]

    def _pause(self) -> list[Heard]:
        silence_s = self.at_s - self._ended_s + 1e-9
        if silence_s >= self.patience_s:
            return [self._end("silence")]
        if silence_s >= self.settings.settle_s and not self._settled:
            self._settled = True
            return [Settled(self._ended_s)]
        return []

    def _end(self, reason: EndReason) -> Finished:
        self._speaking = self._settled = False
        return Finished(self._began_s, self._ended_s, self.at_s - self._ended_s, reason)

    def _windows(self, seconds: float) -> int:
        return max(1, round(seconds / self.settings.window_s))

    def check_integrity(self) -> None:
        """A turn lies within what was heard, and only a turn can have a pause."""
        assert not self._settled or self._speaking
        assert 0 <= self._began_s <= self._ended_s <= self.at_s + 1e-9
        if self._speaking:
            assert self.at_s - self._began_s < self.settings.longest_s
            assert self.at_s - self._ended_s < self.patience_s
