"""Callers who ask one stage of a front again and again, as many as there shall be now."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

from python_backends.errors import StageError
from python_backends.peer import Outputs, Peer, Silent, Unreachable

MODEL: Final = "emu_think"
PAUSE_S: Final = 0.05
AGAIN_S: Final = 0.3
"""After a failure: callers come again as `retry_after_ms` would have them."""

SILENCE_S: Final = 20.0
OK: Final = "ok"
UNTYPED: Final = "untyped"


@dataclass(frozen=True)
class Asked:
    """One turn: when it began and ended (monotonic s), what became of it, and where."""

    began_s: float
    ended_s: float
    outcome: str
    """OK, the error's code, or UNTYPED."""

    replica: str = ""


class Callers:
    """`people` may be changed at any time. See `calling`."""

    def __init__(self, address: str, most: int) -> None:
        self.people = 0
        self.asked: list[Asked] = []
        self._address = address
        self._most = most
        self._ended = threading.Event()

    def failed(self) -> list[Asked]:
        """Turns that were not answered well."""
        return [one for one in self.asked if one.outcome != OK]

    def served(self, replica: str, since_s: float = 0.0) -> int:
        """Turns that began after a time and were answered by one replica."""
        return sum(one.replica == replica and one.began_s > since_s for one in self.asked)

    def run(self) -> None:
        """Until `end`."""
        asyncio.run(self._run())

    def end(self) -> None:
        """Nobody begins a turn any more; those that are open end."""
        self._ended.set()

    async def _run(self) -> None:
        peer = Peer(self._address)
        try:
            await asyncio.gather(*(self._call(peer, number) for number in range(self._most)))
        finally:
            await peer.close()

    async def _call(self, peer: Peer, number: int) -> None:
        turns = 0
        while not self._ended.is_set():
            if number >= self.people:
                await asyncio.sleep(PAUSE_S)
                continue
            turns += 1
            one = await _ask(peer, f"caller-{number}-{turns}")
            self.asked.append(one)
            await asyncio.sleep(PAUSE_S if one.outcome == OK else AGAIN_S)


async def _ask(peer: Peer, turn: str) -> Asked:
    began_s, replica, outcome = time.monotonic(), "", OK
    words = {"HEARD": np.array([[b"a coffee please"]], dtype=np.object_)}
    try:
        answers = peer.stream(MODEL, words, turn=turn, parameters={}, silence_s=SILENCE_S)
        async for answer in answers:
            replica = _replica(answer.outputs) or replica
    except (Silent, Unreachable):
        outcome = UNTYPED  # the front itself did not answer
    except StageError as error:
        outcome = error.code
    return Asked(began_s, time.monotonic(), outcome, replica)


def _replica(outputs: Outputs) -> str:
    """As the proxy's span tells."""
    told = [json.loads(text) for text in outputs["EVENTS"].ravel() if text]
    return next((str(one["replica"]) for one in reversed(told) if "replica" in one), "")


@contextmanager
def calling(address: str, most: int) -> Iterator[Callers]:
    """At most so many callers, none of whom has begun, while the block runs."""
    callers = Callers(address, most)
    thread = threading.Thread(target=callers.run, name="callers")
    thread.start()
    try:
        yield callers
    finally:
        callers.end()
        thread.join()
