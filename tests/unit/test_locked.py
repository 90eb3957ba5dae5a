"""Locked batches, in fake time."""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.scheduling.locked import LockedBatch

PATIENCE_S = 0.5


def batch(max_batch: int = 4) -> LockedBatch[str, str]:
    return LockedBatch(max_batch=max_batch, patience_s=PATIENCE_S)


def test_nobody_joins_a_running_batch() -> None:
    policy = batch()
    policy.add("a", "key", 0.0, later_piece=False)
    assert policy.start(0.0) == ("key", ("a",))
    policy.add("b", "key", 0.1, later_piece=False)
    assert policy.start(0.2) is None
    assert policy.running == ("a",)
    policy.finish()
    assert policy.start(0.3) == ("key", ("b",))


def test_a_batch_is_of_one_key_and_never_too_large() -> None:
    policy = batch(max_batch=2)
    for name, key in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")]:
        policy.add(name, key, 0.0, later_piece=False)
    started = []
    while (run := policy.start(1.0)) is not None:
        started.append(run)
        policy.finish()
    assert started == [("x", ("a", "c")), ("y", ("b",)), ("x", ("d",))]


def test_first_pieces_go_before_later_ones() -> None:
    policy = batch(max_batch=1)
    policy.add("later", "key", 0.0, later_piece=True)
    policy.add("first", "key", 0.1, later_piece=False)
    assert policy.start(0.2) == ("key", ("first",))


def test_a_later_piece_rides_along_where_there_is_room() -> None:
    policy = batch(max_batch=2)
    policy.add("later", "key", 0.0, later_piece=True)
    policy.add("first", "key", 0.1, later_piece=False)
    assert policy.start(0.2) == ("key", ("first", "later"))


def test_a_later_piece_out_of_patience_is_served_by_age() -> None:
    policy = batch(max_batch=1)
    policy.add("later", "key", 0.0, later_piece=True)
    policy.add("first", "key", 0.1, later_piece=False)
    assert policy.start(PATIENCE_S) == ("key", ("later",))


def test_nobody_starves_under_a_flood_of_first_pieces_of_other_keys() -> None:
    """One that is out of patience waits for the running batch and for those older than itself."""
    policy = batch(max_batch=1)
    policy.add("patient", "rare", 0.0, later_piece=True)
    now, batches = 0.0, 0
    while policy.running != ("patient",):
        policy.finish()
        now += 0.1
        policy.add(f"first-{now}", "common", now, later_piece=False)
        policy.start(now)
        batches += 1
    assert batches <= 1 + PATIENCE_S / 0.1


def test_those_who_wait_can_be_dropped_and_those_who_run_can_not() -> None:
    policy = batch(max_batch=1)
    for name in ("runs", "waits"):
        policy.add(name, "key", 0.0, later_piece=False)
    policy.start(0.0)
    assert policy.drop(lambda _: True) == ["waits"]
    assert (policy.running, policy.waiting) == (("runs",), 0)
    policy.finish()
    assert policy.start(1.0) is None


def test_everybody_is_asked_once_whether_to_be_dropped() -> None:
    policy = batch()
    for name in "abc":
        policy.add(name, "key", 0.0, later_piece=False)
    answers = iter([False, True, False, True, True, True])
    assert policy.drop(lambda _: next(answers)) == ["b"]
    assert policy.waiting == 2


def test_items_need_not_be_comparable() -> None:
    @dataclass
    class Piece:
        frames: NDArray[np.float32]

    policy: LockedBatch[str, Piece] = LockedBatch(max_batch=1, patience_s=0)
    for _ in range(3):
        policy.add(Piece(np.zeros(2, np.float32)), "key", 0.0, later_piece=False)
    policy.start(0.0)
    assert policy.waiting == 2


@pytest.mark.parametrize(("max_batch", "patience_s"), [(0, 1.0), (1, -1.0)])
def test_senseless_sizes_are_refused(max_batch: int, patience_s: float) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        LockedBatch[str, str](max_batch=max_batch, patience_s=patience_s)


@dataclass(eq=False)
class Piece:
    """An item that knows what the test must know."""

    name: int
    key: int
    since: float
    later: bool


def is_one_of(names: frozenset[int], piece: Piece) -> bool:
    return piece.name in names


@pytest.mark.parametrize("seed", range(8))
def test_random_pieces_run_once_in_batches_of_one_key(seed: int) -> None:
    random = Random(seed)
    size = random.choice([1, 2, 5])
    policy: LockedBatch[int, Piece] = LockedBatch(max_batch=size, patience_s=PATIENCE_S)
    waiting: list[Piece] = []
    gone: Counter[int] = Counter()
    now, made = 0.0, 0
    while made < 1500 or waiting or policy.running:
        now += random.random() * 0.2
        if made < 1500:
            piece = Piece(made, random.randrange(3), now, random.random() < 0.6)
            made += 1
            waiting.append(piece)
            policy.add(piece, piece.key, now, later_piece=piece.later)
        if random.random() < 0.05:
            chosen = frozenset(one.name for one in waiting if random.random() < 0.3)
            dropped = policy.drop(partial(is_one_of, chosen))
            gone.update(piece.name for piece in dropped)
            waiting = [piece for piece in waiting if piece.name not in chosen]
        if policy.running and random.random() < 0.5:
            policy.finish()
        before = policy.running
        run = policy.start(now)
        policy.check_integrity()
        if run is None:
            assert before or not waiting
            continue
        key, members = run
        assert not before
        assert 1 <= len(members) <= size
        assert {piece.key for piece in members} == {key}
        overdue = [piece for piece in waiting if not piece.later or now - piece.since >= PATIENCE_S]
        if overdue:
            assert members[0] is min(overdue, key=lambda piece: piece.since)
        gone.update(piece.name for piece in members)
        waiting = [piece for piece in waiting if piece not in members]
    assert gone == Counter(dict.fromkeys(range(1500), 1))
