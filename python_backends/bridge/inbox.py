"""What reaches a stage's loop: one queue, small frozen events."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from python_backends.bridge.request import Request


@dataclass(frozen=True)
class Arrived:
    """A request to serve."""

    request: Request


@dataclass(frozen=True)
class CancelTurn:
    """Stop everything that belongs to a turn."""

    turn: str


@dataclass(frozen=True)
class Wake:
    """Something the loop itself has asked for is done, e.g. by a worker thread."""

    news: Any


@dataclass(frozen=True)
class Closed:
    """The model is being unloaded; nothing comes after this."""


Event = Arrived | CancelTurn | Wake | Closed


class Inbox:
    """A thread-safe queue of events."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._wake: Callable[[], object] = lambda: None

    def put(self, event: Event) -> None:
        """Add an event; never blocks."""
        self._queue.put(event)
        self._wake()

    async def events(self) -> AsyncIterator[Event]:
        """Events as they come, for a loop that runs on asyncio; without end."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        called = threading.Event()  # for events that come together, once

        def wake() -> None:
            if not called.is_set():
                called.set()
                loop.call_soon_threadsafe(arrived.set)

        self._wake = wake
        try:
            while True:
                arrived.clear()
                called.clear()
                for event in self.take(0):
                    yield event
                await arrived.wait()
        finally:
            self._wake = lambda: None

    def take(self, timeout_s: float | None) -> list[Event]:
        """All events that are here. With none, wait for the first one: `timeout_s` seconds, None
        for ever, 0 or less not at all."""
        events: list[Event] = []
        try:
            if timeout_s is None or timeout_s > 0:
                events.append(self._queue.get(timeout=timeout_s))
            while True:
                events.append(self._queue.get_nowait())
        except queue.Empty:
            return events
