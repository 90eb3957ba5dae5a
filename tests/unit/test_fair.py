"""Whose turn it is, when some have more to do than others."""

from random import Random

import pytest

from python_backends.scheduling.fair import PATIENCE, FairQueue


def queued(*items: str) -> FairQueue[str]:
    """Items such as "a1", owned by their letter."""
    queue: FairQueue[str] = FairQueue()
    for item in items:
        queue.append(item, item[0])
    return queue


def drained(queue: FairQueue[str]) -> list[str]:
    return [queue.popleft() for _ in range(len(queue))]


def test_owners_with_one_item_each_are_served_as_they_came() -> None:
    assert drained(queued("a1", "b1", "c1")) == ["a1", "b1", "c1"]


def test_one_with_much_to_do_lets_the_others_in_between() -> None:
    assert drained(queued("a1", "a2", "a3", "b1", "b2", "c1")) == [
        *("a1", "b1", "c1"),
        *("a2", "b2"),
        "a3",
    ]


def test_a_newcomer_waits_for_one_item_of_each_at_most() -> None:
    queue = queued("a1", "a2", "a3", "a4")
    assert [queue.popleft(), queue.popleft()] == ["a1", "a2"]
    queue.append("b1", "b")
    assert drained(queue) == ["b1", "a3", "a4"]


def test_who_is_taken_out_is_not_served() -> None:
    queue = queued("a1", "b1", "a2")
    assert queue.remove("b1")
    assert not queue.remove("b1")
    assert (queue.first(), list(queue), len(queue)) == ("a1", ["a1", "a2"], 2)


def test_a_second_item_is_not_passed_for_ever() -> None:
    queue = queued("a1", "a2")
    served = []
    for number in range(100):
        queue.append(f"{number}", f"newcomer {number}")
        served.append(queue.popleft())
    assert served.index("a2") <= PATIENCE + 1


def test_an_owner_that_comes_again_when_it_has_nothing_waiting_is_like_any_other() -> None:
    queue = queued("a1", "b1", "c1")
    assert queue.popleft() == "a1"
    queue.append("a2", "a")
    queue.append("d1", "d")
    assert drained(queue) == ["b1", "c1", "a2", "d1"]


@pytest.mark.parametrize("seed", range(5))
def test_at_random_everybody_is_passed_a_few_times_at_most_and_nothing_is_kept(seed: int) -> None:
    random = Random(seed)
    queue: FairQueue[int] = FairQueue()
    waiting: list[int] = []
    passes: dict[int, int] = {}
    for number in range(4000):
        if random.random() < 0.55 or not queue:
            queue.append(number, random.choice("aaaaabcd") if random.random() < 0.5 else number)
            waiting.append(number)
        else:
            served = queue.popleft()
            for earlier in waiting[: waiting.index(served)]:
                passes[earlier] = passes.get(earlier, 0) + 1
            waiting.remove(served)
        if random.random() < 0.02 and waiting:
            gone = random.choice(waiting)
            assert queue.remove(gone)
            waiting.remove(gone)
        queue.check_integrity()
    assert max(passes.values()) <= PATIENCE
    assert sorted(queue) == sorted(waiting)
