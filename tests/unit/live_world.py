"""Callers of a live stage, and turns that are answered as a script says."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from python_backends.listening.loop import Calls
from python_backends.live_call.conversation import Conversation
from python_backends.live_call.settings import LiveSettings
from python_backends.pieces import LAST_CHUNK, LAST_PIECE
from tests.unit.fake_triton import Message, failure, message, texts
from tests.unit.listening_world import ROUTE, SETTINGS, WAIT_S, Caller, World, nobody, running

LIVE = LiveSettings(**asdict(SETTINGS), turn_model="turn", lead_ms=500, confirm_ms=800)
RATE_HZ = 24_000


class LiveWorld(World):
    """`pieces`: text and seconds of each chunk of the pieces of every answer."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: Sequence[tuple[str, Sequence[float]]] = [("Sure.", [0.2]), ("Fries?", [0.3])]
        self.refuse = ""
        """The error that turns are answered with."""

        self.turns: list[dict[str, Any]] = []
        """HEARD and HISTORY of every turn, and whether it was broken off."""

        self.thinking = threading.Event()
        self.thinking.set()
        self.pause_s = 0.0
        """Before each chunk."""

    def script(self, request: Any, context: Any) -> Iterator[Message]:
        names = [one.name for one in request.inputs]
        if request.model_name != "turn" or "CONTROL" in names:
            yield from super().script(request, context)
            return
        given = {
            name: raw[4:].decode()
            for name, raw in zip(names, request.raw_input_contents, strict=True)
        }
        turn: dict[str, Any] = {
            "id": request.id,
            "heard": given["HEARD"],
            "history": [one["text"] for one in json.loads(given.get("HISTORY", "[]"))],
            "options": {key for key in request.parameters if not key.startswith("triton")},
        }
        self.turns.append(turn)
        gone = threading.Event()
        context.add_callback(gone.set)
        while not (self.thinking.wait(0.01) or gone.is_set()):
            pass
        if self.refuse:
            yield failure(request, self.refuse)
            return
        for piece, (text, chunks) in enumerate(self.pieces):
            last_piece = LAST_PIECE if piece == len(self.pieces) - 1 else 0
            for number, seconds in enumerate(chunks):
                if gone.wait(self.pause_s):
                    return
                flags = last_piece | (LAST_CHUNK if number == len(chunks) - 1 else 0)
                yield message(
                    request,
                    PIECE=np.array([[piece, number, flags]], np.int32),
                    TEXT=texts(text),
                    SPEECH=np.full((1, round(seconds * RATE_HZ)), piece + 1, np.float32),
                    SAMPLE_RATE=np.array([[RATE_HZ]], np.int32),
                    EVENTS=texts("{}"),
                )
        turn["done"] = True
        yield message(request, final=True)

    def hearing(self, *words: str) -> None:
        """What is heard in turn; the last of it for ever."""
        left = list(words)
        self.words = lambda sound: left.pop(0) if len(left) > 1 else left[0]


def live(
    clock: Callable[[], float] = time.monotonic, **changed: Any
) -> AbstractContextManager[LiveWorld]:
    """A live stage, with these settings changed. By a clock that stands still nothing is played but
    what the caller reports."""
    settings = replace(LIVE, **changed)
    make_call = partial(Conversation, settings=settings)
    return running(
        LiveWorld(),
        lambda address: Calls(
            settings, address, make_call=make_call, clock=clock, route=ROUTE, find=nobody
        ),
    )


def after(caller: Caller, kind: str, times: int = 1) -> list[str]:
    """The kinds of events behind the n-th of a kind."""
    caller.until(kind, times)
    kinds = [one["type"] for one in caller.events]
    places = [place for place, one in enumerate(kinds) if one == kind]
    return kinds[places[times - 1] + 1 :]


def rest(seconds: float) -> None:
    """Let time pass."""
    time.sleep(min(seconds, WAIT_S))
