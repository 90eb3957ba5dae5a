"""Interval arithmetic, against sets of single nanoseconds."""

import random
from itertools import pairwise

import pytest

from loadtest.ledger.intervals import (
    Intervals,
    difference,
    intersection,
    shares,
    total,
    union,
    within,
)

SEEDS = range(40)
SPAN = 60


def some(chance: random.Random, count: int = 8) -> list[tuple[int, int]]:
    pairs = ((chance.randrange(SPAN), chance.randrange(12)) for _ in range(chance.randrange(count)))
    return [(start, start + length) for start, length in pairs]


def moments(intervals: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in intervals for moment in range(start, end)}


def is_sound(intervals: Intervals) -> bool:
    ordered = all(one[1] < other[0] for one, other in pairwise(intervals))
    return ordered and all(start < end for start, end in intervals)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_operation_agrees_with_sets_of_moments(seed: int) -> None:
    chance = random.Random(seed)
    one, other = some(chance), some(chance)
    a, b = union(one), union(other)
    assert is_sound(a)
    assert moments(a) == moments(one)
    assert total(a) == len(moments(one))
    assert moments(intersection(a, b)) == moments(a) & moments(b)
    assert moments(difference(a, b)) == moments(a) - moments(b)
    start, end = sorted((chance.randrange(SPAN), chance.randrange(SPAN)))
    assert moments(within(a, start, end)) == moments(a) & set(range(start, end))


@pytest.mark.parametrize("seed", SEEDS)
def test_shares_divide_the_whole_and_the_earlier_claim_wins(seed: int) -> None:
    chance = random.Random(seed)
    whole = union(some(chance, 4))
    claims = [(name, union(some(chance))) for name in ("a", "b", "a", "c")]
    parts = shares(whole, claims, "rest")
    assert sum(total(part) for part in parts.values()) == total(whole)
    assert set().union(*map(moments, parts.values())) == moments(whole)
    taken: set[int] = set()
    for name, claimed in claims:
        mine = (moments(claimed) & moments(whole)) - taken
        assert mine <= moments(parts[name])
        taken |= mine
    assert moments(parts["rest"]) == moments(whole) - taken


def test_touching_intervals_become_one_and_empty_ones_vanish() -> None:
    assert union([(3, 5), (5, 7), (9, 9), (8, 6)]) == [(3, 7)]
