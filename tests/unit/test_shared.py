"""Work that several asked for, done once."""

from collections import Counter
from random import Random

import pytest

from python_backends.scheduling.shared import Shared


def test_the_first_begins_it_and_everybody_gets_it() -> None:
    shared: Shared[str, str] = Shared()
    assert [shared.join("sound", who) for who in "abc"] == [True, False, False]
    assert shared.joined == 2
    assert shared.finish("sound") == ["a", "b", "c"]
    assert shared.under_way == 0


def test_what_is_over_is_begun_anew() -> None:
    shared: Shared[str, str] = Shared()
    shared.join("sound", "a")
    shared.finish("sound")
    assert shared.join("sound", "b")
    assert shared.joined == 0


def test_different_work_is_not_shared() -> None:
    shared: Shared[str, str] = Shared()
    assert shared.join("one", "a")
    assert shared.join("other", "b")
    assert shared.finish("one") == ["a"]
    assert shared.members("other") == ("b",)


def test_when_the_first_leaves_the_work_goes_on_for_the_others() -> None:
    shared: Shared[str, str] = Shared()
    for who in "ab":
        shared.join("sound", who)
    assert not shared.leave("sound", "a")
    assert shared.members("sound") == ("b",)
    assert shared.leave("sound", "b")
    assert shared.join("sound", "c")


def test_somebody_who_joins_twice_is_noticed() -> None:
    shared: Shared[str, str] = Shared()
    shared.join("one", "a")
    shared.join("other", "a")
    with pytest.raises(AssertionError, match="twice"):
        shared.check_integrity()


@pytest.mark.parametrize("seed", range(5))
def test_at_random_everybody_is_served_or_leaves_once_and_no_work_is_done_twice_at_a_time(
    seed: int,
) -> None:
    random = Random(seed)
    shared: Shared[int, int] = Shared()
    waits: dict[int, int] = {}
    under_way: set[int] = set()
    gone: Counter[int] = Counter()
    for member in range(4000):
        waits[member] = key = random.randrange(6)
        assert shared.join(key, member) == (key not in under_way)
        under_way.add(key)
        if random.random() < 0.3:
            leaver = random.choice(list(waits))
            left = waits.pop(leaver)
            gone[leaver] += 1
            if shared.leave(left, leaver):
                assert left not in waits.values()
                under_way.remove(left)
        if random.random() < 0.4 and under_way:
            done = random.choice(sorted(under_way))
            for served in shared.finish(done):
                assert waits.pop(served) == done
                gone[served] += 1
            under_way.remove(done)
        shared.check_integrity()
        assert shared.under_way == len(under_way)
    gone.update(waits.keys())
    assert gone == Counter(range(4000))
