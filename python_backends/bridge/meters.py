"""What a stage tells of itself while it runs: how long, how often, how many.

A loop only appends; a thread of its backend publishes, because one figure on Triton's /metrics
takes the time of a hundred appended ones, and stops every other thread meanwhile.
"""

from collections import deque
from typing import Literal

Timing = Literal[
    "queue_seconds",
    "window_seconds",
    "lock_seconds",
    "step_seconds",
    "gap_seconds",
    "first_chunk_seconds",
    "chunk_seconds",
]
Event = Literal[
    "heartbeats_total",
    "releases_total",
    "requests_total",
    "restarts_total",
    "shared_total",
    "spans_total",
    "steps_total",
]
Level = Literal[
    "slots",
    "bytes",
    "stage_bytes",
    "session_bytes",
    "open_requests",
    "dead_turns",
    "remote_turns",
    "server_started",
    "stage_up",
]
Name = Timing | Event | Level
Labels = tuple[tuple[str, str], ...]
"""Beside the stage, which is always one."""

Entry = tuple[Name, Labels, float]

BACKLOG = 8192
"""Entries that may wait; beyond, the oldest are lost. Some seconds of the busiest stage."""


class Meters:
    """Takes figures and forgets them: what a loop has when nobody looks at it."""

    def observe(self, name: Timing, seconds: float) -> None:
        """Something took so long."""

    def count(self, name: Event, times: int = 1, **labels: str) -> None:
        """Something happened once more, or so many times."""

    def begin(self, name: Event, **labels: str) -> None:
        """It has not happened yet: who reads a counter's increase has to have seen it at 0."""
        self.count(name, 0, **labels)

    def gauge(self, name: Level, value: float, **labels: str) -> None:
        """Something is so large now."""

    def step(self, seconds: float) -> None:
        """A step, a pass or a batch took so long; how many there are stays exact, however many."""
        self.observe("step_seconds", seconds)
        self.count("steps_total")

    def slots(self, *, running: int, waiting: int, free: int) -> None:
        """So many places of a stage are taken, asked for, and empty now."""
        self.gauge("slots", running, state="running")
        self.gauge("slots", waiting, state="waiting")
        self.gauge("slots", free, state="free")


class Tally(Meters):
    """Keeps figures until they are taken. Any thread may add; one takes."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque(maxlen=BACKLOG)

    def observe(self, name: Timing, seconds: float) -> None:
        self._entries.append((name, (), seconds))

    def count(self, name: Event, times: int = 1, **labels: str) -> None:
        self._entries.append((name, tuple(labels.items()), float(times)))

    def gauge(self, name: Level, value: float, **labels: str) -> None:
        self._entries.append((name, tuple(labels.items()), value))

    def take(self) -> list[Entry]:
        """Everything added since the last time, in order."""
        return [self._entries.popleft() for _ in range(len(self._entries))]
