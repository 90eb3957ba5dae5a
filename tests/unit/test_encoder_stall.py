"""The encoder's loop keeps its stall budget: with a leaf, a clock and streams of the test's own."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
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
    identity: None = None


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


def test_beside_streams_no_pass_is_longer_than_the_budget() -> None:
    world = World(max_stall_ms=40)
    world.running = 5
    world.speak(7)
    assert world.batches == [1, 2, 2, 2]
    assert world.answered == 7


def test_with_nobody_running_passes_are_full() -> None:
    world = World(max_stall_ms=40)
    world.speak(17)
    assert max(world.batches) == 8


def test_a_gathering_encoder_waits_for_streams_to_end_and_then_takes_everybody() -> None:
    world = World(max_stall_ms=40, gather_ms=100)
    world.running = 5
    world.speak(6)
    assert world.batches == []
    world.running = 0
    world.wait(0.05)
    assert sum(world.batches) == 6
    assert world.answered == 6


def test_a_gathering_encoder_does_not_wait_longer_than_it_may() -> None:
    world = World(max_stall_ms=40, gather_ms=100)
    world.running = 5
    world.speak(3)
    world.wait(0.1)
    assert world.batches == [1, 2]


def test_a_pause_ends_with_those_who_waited_in_it() -> None:
    world = World(max_stall_ms=40, gather_ms=100)
    world.now = time.monotonic()
    world.running = 5
    world.speak(2)
    world.cancel(2)
    assert world.answered == 2
    world.running = 0
    world.now += 30
    world.speak(1)
    assert world.answered == 3
    assert max(world.gathers()) < 1


def test_gathering_without_a_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="max_stall_ms must be set"):
        World(gather_ms=100)


def told(world: World, name: str) -> list[float]:
    """What the loop has told of one figure, each value rounded to microseconds."""
    return [round(value, 6) for known, _, value in world.tally.take() if known == name]


def test_a_pass_tells_why_it_left_and_each_member_how_long_it_had_waited() -> None:
    world = World(max_stall_ms=40, gather_ms=100)
    world.running = 5
    world.speak(3)
    assert told(world, "window_seconds") == []
    world.wait(0.1)
    entries = world.tally.take()
    assert world.batches == [1, 2]
    released = [labels for name, labels, _ in entries if name == "releases_total"]
    assert released == [(("reason", "stall_budget"),)] * 2
    for name in ("window_seconds", "queue_seconds"):
        assert [round(v, 6) for known, _, v in entries if known == name] == [0.1] * 3
    assert len([name for name, *_ in entries if name == "step_seconds"]) == 2


def test_an_idle_encoder_has_all_its_places_free() -> None:
    world = World(max_stall_ms=40)
    world.speak(5)
    levels = {labels: value for name, labels, value in world.tally.take() if name == "slots"}
    assert levels == {
        (("state", "running"),): 0,
        (("state", "waiting"),): 0,
        (("state", "free"),): 8,
    }
