"""The encoder's loop stepped by hand: with a leaf, a clock and streams of the test's own."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Request, Wake
from python_backends.bridge.meters import Tally
from python_backends.encoder_window.leaf import Encoded
from python_backends.encoder_window.loop import EncodeLoop
from python_backends.encoder_window.settings import EncodeSettings
from python_backends.scheduling.stall import Streams
from python_backends.scheduling.window import NO_COST, Cost
from tests import fakes


@dataclass(frozen=True)
class Sound:
    bucket: int = 0
    silent: bool = False
    cost: Cost = NO_COST
    identity: int | None = None


class Leaf:
    """Passes cost 22 ms and 8 ms a member, on the test's clock."""

    def __init__(self, world: "World") -> None:
        self.world = world

    def windows(self, request: Request) -> list[Sound]:
        return [Sound()]

    def build(self, window: Sound) -> Sound:
        return window

    def encode(self, built: Sequence[Sound]) -> Encoded:
        self.world.batches.append(len(built))
        return Encoded(list(built), 0.022 + 0.008 * len(built))

    def outputs(self, windows: Sequence[Any], results: Sequence[Any]) -> dict[str, NDArray[Any]]:
        return {"VALID": np.ones((1, 1), np.int32)}


class World:
    """A loop stepped by hand."""

    def __init__(self, **settings: float) -> None:
        self.now = 0.0
        self.running = 0
        self.tally = Tally()
        self.batches: list[int] = []
        known = {"encoder_model": "m", "window_ms": 6, "max_batch": 8, "max_audio_s": 60}
        self.settings = EncodeSettings(build_workers=1, max_waiting=64, **{**known, **settings})
        self.loop = EncodeLoop(
            self.settings,
            Leaf(self),
            lambda: self.now,
            lambda: [Streams(self.running)],
            self.tally,
        )
        self.senders: list[fakes.InferenceResponseSender] = []

    def speak(self, count: int) -> None:
        """So many callers arrive at once, and everything that follows at this moment happens."""
        inbox = Inbox()
        for _ in range(count):
            native = fakes.arriving({}, request_id=f"t{len(self.senders)}")
            self.senders.append(native.sender)
            request = Request(native, "encode", lambda _: None)
            request.arrived_ns = int(self.now * 1e9)
            inbox.put(Arrived(request))
        self._serve(inbox)

    def cancel(self, count: int) -> None:
        """The first so many callers cancel."""
        inbox = Inbox()
        for number in range(count):
            inbox.put(CancelTurn(f"t{number}"))
        self._serve(inbox)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._serve(Inbox())

    def gathers(self) -> list[float]:
        """Seconds of each span that says the last caller was made to wait for company."""
        (outputs,) = self.senders[-1].values()
        spans = [json.loads(entry) for entry in outputs["EVENTS"].reshape(-1)]
        return [(s["end_ns"] - s["start_ns"]) / 1e9 for s in spans if s["what"] == "gather"]

    @property
    def answered(self) -> int:
        return sum(sender.finals for sender in self.senders)

    def _serve(self, inbox: Inbox) -> None:
        """Run the loop until it would wait for a stranger, or for time to pass."""
        self.loop.run(Draining(inbox, self.loop))


class Draining(Inbox):
    """Gives what has come and what the loop's own threads send; then one look, then the end."""

    def __init__(self, inner: Inbox, loop: EncodeLoop) -> None:
        super().__init__()
        self.inner, self.loop, self.looked = inner, loop, False

    def put(self, event: Any) -> None:
        self.inner.put(event)

    def take(self, timeout_s: float | None) -> list[Any]:
        under_way = self.loop._running is not None or sum(self.loop._window._building.values())
        events = self.inner.take(fakes.WAIT_S if under_way else 0)
        if events or not self.looked:
            self.looked = not events
            return events or [Wake(None)]
        return [Closed()]
