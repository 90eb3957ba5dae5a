"""Our engine without a server or a loop, and what a peer must do to be measured beside it."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from python_backends.scheduling.continuous import Move
from python_backends.slot_engine.command import (
    GREEDY,
    RESTART,
    Command,
    Decode,
    Prefill,
    Result,
    Tokens,
)
from python_backends.slot_engine.engine import SlotPoolEngine

ROOT = Path(__file__).parents[2]
STEP = ROOT / "model_repository" / "think_step" / "1"
FIRST_TOKEN = 1000
"""Prompts are runs of ordinary ids: what they mean changes no time."""


class Contestant(Protocol):
    """One thread, greedy, the same shapes."""

    def fill(self, context: int) -> None:
        """Every row holds `context` tokens."""

    def steps(self, rows: int, context: int, count: int) -> list[float]:
        """ms of each of `count` decode steps of rows 0..rows-1, the first one after `context`."""

    def prefill(self, tokens: int) -> float:
        """ms of one prompt, to its first token; what the rows held is gone."""

    def close(self) -> None:
        """Give the memory back."""


class Ours:
    """The slot-pool engine, commanded as the loop does; the argmax is part of a step."""

    def __init__(self, slots: int, capacity: int, threads: int = 1) -> None:
        self.engine = SlotPoolEngine(STEP, slots=slots, capacity=capacity, threads=threads)
        self._number = RESTART
        self._last = np.full(slots, FIRST_TOKEN, np.int64)

    def fill(self, context: int) -> None:
        """See Contestant."""
        self.prefill(context)
        slots = self.engine.slots
        self._run(moves=tuple(Move(0, row, context) for row in range(1, slots)))

    def steps(self, rows: int, context: int, count: int) -> list[float]:
        """See Contestant."""
        return [self._step(rows, context + number) for number in range(count)]

    def prefill(self, tokens: int) -> float:
        """See Contestant."""
        part = Prefill(row=0, start=0, tokens=prompt(tokens), is_last=True)
        began = time.perf_counter()
        self._run(prefill=part)
        return 1e3 * (time.perf_counter() - began)

    def close(self) -> None:
        """See Contestant."""
        del self.engine

    def _step(self, rows: int, context: int) -> float:
        began = time.perf_counter()
        step = Decode(self._last[:rows], np.full(rows, context, np.int64), (GREEDY,) * rows)
        drawn = self._run(decode=step).decode
        took_ms = 1e3 * (time.perf_counter() - began)
        assert drawn is not None
        self._last[:rows] = drawn.tokens[:, 0]
        return took_ms

    def _run(
        self,
        moves: tuple[Move, ...] = (),
        prefill: Prefill | None = None,
        decode: Decode | None = None,
    ) -> Result:
        command = Command(self._number, moves=moves, prefill=prefill, decode=decode)
        self._number += 1
        return self.engine.run(command)


def prompt(tokens: int) -> Tokens:
    """Ids [tokens] of a prompt."""
    return np.arange(FIRST_TOKEN, FIRST_TOKEN + tokens, dtype=np.int64)


def warm(contestants: Sequence[Contestant], rows: Sequence[int], context: int) -> None:
    """Fill the rows, and make every shape once: a first step binds, allocates and prepacks."""
    for one in contestants:
        one.fill(context)
        for count in rows:
            one.steps(count, context, 1)
