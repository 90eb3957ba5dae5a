"""Interleaved steps, in fake time."""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest

from python_backends.scheduling.interleaved import InterleavedBatch

PATIENCE_S = 0.5


def batch(max_batch: int = 4) -> InterleavedBatch[str, str]:
    return InterleavedBatch(max_batch=max_batch, patience_s=PATIENCE_S)


def calls_of(policy: InterleavedBatch[str, str], now: float = 0.0) -> list[str]:
    """Every call until nobody is left, as the names of its members."""
    calls = []
    while (members := policy.start(now)) is not None:
        calls.append("".join(members))
        policy.finish()
    return calls


def test_a_newcomer_joins_at_the_next_call_and_each_leaves_after_its_own_last() -> None:
    policy = batch()
    policy.add("a", "key", 3, 0.0, later_piece=False)
    assert policy.start(0.0) == ("a",)
    policy.add("b", "key", 3, 0.1, later_piece=False)
    assert policy.start(0.1) is None
    assert policy.running == ("a",)
    assert policy.finish() == ()
    assert calls_of(policy, 0.2) == ["ab", "ab", "b"]


def test_who_needs_fewer_calls_makes_room_for_the_next() -> None:
    policy = batch(max_batch=2)
    for name, calls in [("a", 4), ("b", 1), ("c", 2)]:
        policy.add(name, "key", calls, 0.0, later_piece=False)
    assert calls_of(policy) == ["ab", "ac", "ac", "a"]


def test_a_call_is_of_one_key_that_of_the_oldest() -> None:
    policy = batch()
    for name, key in [("a", "x"), ("b", "y"), ("c", "x")]:
        policy.add(name, key, 2, 0.0, later_piece=False)
    assert calls_of(policy) == ["ac", "ac", "b", "b"]


def test_a_first_piece_takes_the_next_call_from_later_ones_which_then_go_on() -> None:
    policy = batch()
    policy.add("l", "long", 3, 0.0, later_piece=True)
    policy.start(0.0)
    policy.add("f", "short", 2, 0.1, later_piece=False)
    policy.finish()
    assert calls_of(policy, 0.2) == ["f", "f", "l", "l"]


def test_a_later_piece_rides_along_where_there_is_room() -> None:
    policy = batch(max_batch=2)
    policy.add("l", "key", 1, 0.0, later_piece=True)
    policy.add("f", "key", 1, 0.1, later_piece=False)
    assert calls_of(policy, 0.2) == ["fl"]


def test_a_later_piece_out_of_patience_is_served_by_age() -> None:
    policy = batch(max_batch=1)
    policy.add("l", "key", 2, 0.0, later_piece=True)
    policy.add("f", "key", 1, 0.1, later_piece=False)
    assert calls_of(policy, PATIENCE_S) == ["l", "l", "f"]


def test_nobody_starves_under_a_flood_of_first_pieces_of_other_keys() -> None:
    policy = batch(max_batch=1)
    policy.add("patient", "rare", 3, 0.0, later_piece=True)
    calls: list[tuple[str, ...] | None] = []
    for tenth in range(12):
        policy.add(f"first-{tenth}", "common", 2, tenth / 10, later_piece=False)
        calls.append(policy.start(tenth / 10))
        policy.finish()
    others = [("first-0",), ("first-0",), ("first-1",), ("first-1",), ("first-2",)]
    assert calls[:8] == [*others, *[("patient",)] * 3]
    assert calls[8:] == [("first-2",), ("first-3",), ("first-3",), ("first-4",)]


def test_one_that_is_dropped_in_a_call_ends_with_it_and_is_not_done() -> None:
    policy = batch()
    for name in "ab":
        policy.add(name, "key", 1 if name == "a" else 2, 0.0, later_piece=False)
    policy.start(0.0)
    assert policy.drop(lambda name: name == "a") == ["a"]
    assert policy.running == ("a", "b")
    assert policy.waiting == 0
    assert policy.finish() == ()
    assert calls_of(policy) == ["b"]


def test_everybody_is_asked_once_whether_to_be_dropped() -> None:
    policy = batch()
    for name in "abc":
        policy.add(name, "key", 1, 0.0, later_piece=False)
    answers = iter([False, True, False])
    assert policy.drop(lambda _: next(answers)) == ["b"]
    assert policy.waiting == 2


@pytest.mark.parametrize(("max_batch", "patience_s"), [(0, 1.0), (1, -1.0)])
def test_senseless_sizes_are_refused(max_batch: int, patience_s: float) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        InterleavedBatch[str, str](max_batch=max_batch, patience_s=patience_s)


def test_an_item_without_calls_is_refused() -> None:
    with pytest.raises(ValueError, match="needs 0 calls"):
        batch().add("a", "key", 0, 0.0, later_piece=False)


@dataclass(eq=False)
class Piece:
    """An item that knows what the test must know."""

    name: int
    key: int
    calls: int
    since: float
    later: bool
    in_calls: list[int] = field(default_factory=list)

    def is_urgent(self, now: float) -> bool:
        return not self.later or now - self.since >= PATIENCE_S


def is_one_of(names: frozenset[int], piece: Piece) -> bool:
    return piece.name in names


class World:
    """Random arrivals, calls and cancels; what must hold is checked at every call."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.size = self.random.choice([1, 2, 5])
        self.policy: InterleavedBatch[int, Piece] = InterleavedBatch(
            max_batch=self.size, patience_s=PATIENCE_S
        )
        self.open: list[Piece] = []
        self.done: list[Piece] = []
        self.dropped: list[Piece] = []
        self.now, self.made, self.calls = 0.0, 0, 0

    def arrive(self) -> None:
        random = self.random
        calls = random.choice([1, 2, 4, 8, 64])
        piece = Piece(self.made, random.randrange(3), calls, self.now, random.random() < 0.6)
        self.made += 1
        self.open.append(piece)
        self.policy.add(piece, piece.key, calls, self.now, later_piece=piece.later)

    def cancel(self) -> None:
        chosen = frozenset(one.name for one in self.open if self.random.random() < 0.3)
        dropped = self.policy.drop(partial(is_one_of, chosen))
        assert {one.name for one in dropped} == chosen
        self.dropped += dropped
        self.open = [one for one in self.open if one not in dropped]

    def finish(self) -> None:
        done = self.policy.finish()
        assert all(one in self.open for one in done)
        self.done += done
        self.open = [one for one in self.open if one not in done]

    def start(self) -> None:
        busy = self.policy.running
        members = self.policy.start(self.now)
        if members is None:
            assert busy or not self.open
            return
        assert not busy
        self.calls += 1
        for one in members:
            one.in_calls.append(self.calls)
        self.check(members)

    def check(self, members: tuple[Piece, ...]) -> None:
        assert 1 <= len(members) <= self.size
        assert {one.key for one in members} == {members[0].key}
        urgent = [one for one in self.open if one.is_urgent(self.now)]
        assert members[0] is min(urgent or self.open, key=lambda one: one.since)
        left_out = [one for one in urgent if one.key == members[0].key and one not in members]
        if left_out:
            assert len(members) == self.size
            oldest = min(one.since for one in left_out)
            assert all(one.is_urgent(self.now) and one.since <= oldest for one in members)


@pytest.mark.parametrize("seed", range(8))
def test_random_pieces_make_exactly_their_calls_and_the_first_in_rank_is_in_each(seed: int) -> None:
    world = World(seed)
    pieces = 400
    while world.made < pieces or world.open or world.policy.running:
        world.now += world.random.random() * 0.2
        if world.made < pieces and world.random.random() < 0.2:
            world.arrive()
        if world.random.random() < 0.02:
            world.cancel()
        if world.policy.running and world.random.random() < 0.9:
            world.finish()
        world.start()
        world.policy.check_integrity()
    assert all(len(one.in_calls) == one.calls for one in world.done)
    assert all(len(one.in_calls) <= one.calls for one in world.dropped)
    gone = Counter(one.name for one in [*world.done, *world.dropped])
    assert gone == Counter(dict.fromkeys(range(pieces), 1))


@pytest.mark.parametrize("seed", range(4))
def test_an_urgent_piece_waits_for_the_calls_of_older_ones_and_no_others(seed: int) -> None:
    """The bound of starvation, under a load that a batch of one cannot keep up with."""
    random = Random(seed)
    policy: InterleavedBatch[int, Piece] = InterleavedBatch(max_batch=1, patience_s=0.0)
    pieces = [
        Piece(n, random.randrange(4), random.randint(1, 8), float(n), random.random() < 0.5)
        for n in range(60)
    ]
    finished: list[int] = []
    for call in range(sum(one.calls for one in pieces)):
        if call < len(pieces):
            one = pieces[call]
            policy.add(one, one.key, one.calls, one.since, later_piece=one.later)
        assert policy.start(float(call)) is not None
        finished += [one.name for one in policy.finish()]
    assert finished == [one.name for one in pieces]
