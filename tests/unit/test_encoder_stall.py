"""The encoder's loop keeps its stall budget: with a leaf, a clock and streams of the test's own."""

import time

import pytest

from tests.unit.encoder_world import World


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
