"""Whose turn it is, when some have more to do than others."""

from random import Random

from python_backends.scheduling.fair import FairQueue


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


def test_nobody_waits_for_more_than_one_item_of_any_other_owner() -> None:
    random = Random(5)
    queue: FairQueue[str] = FairQueue()
    passed: dict[str, dict[str, int]] = {}
    for number in range(4000):
        if random.random() < 0.5:
            owner = random.choice("aaaaabcdefgh")
            if not any(item[0] == owner for item in queue):
                passed[owner] = {}
            queue.append(f"{owner}{number}", owner)
        elif queue:
            served = queue.popleft()[0]
            for owner in {item[0] for item in queue} - {served}:
                seen = passed.setdefault(owner, {})
                seen[served] = seen.get(served, 0) + 1
                assert seen[served] <= 2, f"{owner} was passed by {served} again and again"
            passed[served] = {}
        queue.check_integrity()
