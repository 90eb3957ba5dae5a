"""Orders of several clauses, with pauses of known length inside, as long calls.

Spoken by a synthetic voice (hibari), a file a clause; the same every time.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from hibari import Hibari

from client import audio
from loadtest.live.sounds import RATE_HZ, Floats, seconds, silence, trimmed
from loadtest.stages.recordings import SPEECH_RATE_HZ

PAUSES_S: Final = (0.3, 1.2)
BEFORE_S, BETWEEN_S = 0.5, 2.5
"""Silence before the first order of a call, and behind each: longer than anybody is waited for."""

NOISE: Final = 0.001
"""Of a quiet room, white, root mean square: 60 dB below full scale."""

ORDERS: Final[tuple[tuple[str, ...], ...]] = (
    ("I'd like two cheeseburgers", "a large fries", "and a medium Coke, please."),
    ("Can I get a", "chicken sandwich with no pickles?"),
    ("Hi, um,", "I'll have the number four", "with a lemonade."),
    ("Three tacos", "and two of them without onions."),
    ("We need four kids meals,", "two with milk", "and two with apple juice."),
    ("Could I have a", "small vanilla milkshake", "and, let me think,", "an apple pie?"),
    ("Give me a veggie burger", "but without the", "tomatoes, please."),
    ("I want a large pepperoni pizza.", "Actually, make that a medium."),
    ("A black coffee,", "a blueberry muffin", "and that's all."),
    ("My daughter wants the nuggets", "and I'll take a", "Caesar salad."),
    ("Do you still have the", "fish sandwich from last week?"),
    ("One hot dog with mustard", "and one with ketchup."),
    ("Let me get ten wings,", "half of them spicy", "and half of them mild."),
    ("I think I'd like", "the turkey club", "on wheat bread."),
    ("Can we change the", "orange juice to", "iced tea?"),
    ("Two bean burritos.", "Extra cheese on both of them."),
    ("Is there any", "bacon in the potato soup?"),
    ("Please add a bottle of water", "and some extra napkins."),
    ("I'll have a double burger,", "no onions,", "with sweet potato fries."),
    ("That would be", "one grilled cheese", "and a bowl of chili."),
)

Speak = Callable[[str], Floats]
"""A clause, nothing but speech, at 16 kHz."""


@dataclass(frozen=True)
class Order:
    """Where its first and last speech is in the call's sound, s."""

    text: str
    begin_s: float
    end_s: float
    pauses_s: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Spoken:
    """One call: float32 [samples] at 16 kHz, and the orders in it."""

    sound: Floats
    orders: tuple[Order, ...]


def pauses(number: int, clauses: int) -> tuple[float, ...]:
    """Between the clauses of order `number`, s."""
    drawn = np.random.default_rng(number).uniform(*PAUSES_S, clauses - 1)
    return tuple(round(float(one), 2) for one in drawn)


def calls(count: int, orders: int, speak: Speak) -> list[Spoken]:
    """The first orders dealt out to so many callers, who speak one after the other."""
    return [
        _call(range(first, min(orders, len(ORDERS)), count), speak, seed=first)
        for first in range(count)
    ]


def _call(numbers: Sequence[int], speak: Speak, seed: int) -> Spoken:
    parts, found = [silence(BEFORE_S)], []
    for number in numbers:
        clauses = ORDERS[number]
        gaps = pauses(number, len(clauses))
        begin = sum(map(len, parts))
        for clause, gap in zip(clauses, (*gaps, BETWEEN_S), strict=True):
            parts += [speak(clause), silence(gap)]
        end = sum(map(len, parts[:-1]))
        found.append(Order(" ".join(clauses), begin / RATE_HZ, end / RATE_HZ, gaps))
    clean = np.concatenate(parts)
    noise = NOISE * np.random.default_rng(seed).standard_normal(len(clean))
    return Spoken(np.asarray(np.clip(clean + noise, -1, 1), np.float32), tuple(found))


class Teacher:
    """Speaks each clause once, and keeps it in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, clause: str) -> Floats:
        """See Speak."""
        name = hashlib.sha256(clause.encode()).hexdigest()[:16]
        path = self._folder / f"{name}.wav"
        if not path.exists():
            audio.write(path, self._speak(clause), RATE_HZ)
        return trimmed(audio.read(path))

    @cached_property
    def _voice(self) -> Hibari:
        return Hibari(threads=1)

    def _speak(self, clause: str) -> Floats:
        speech = np.asarray(self._voice(clause, seed=0), np.float32)
        return audio.resample(speech, SPEECH_RATE_HZ, RATE_HZ)


def length_s(spoken: Sequence[Spoken]) -> float:
    """Of all of it."""
    return sum(seconds(one.sound) for one in spoken)
