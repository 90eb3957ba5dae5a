"""Who begins, who waits, who is refused and why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from python_backends.scheduling.admission import Admission, Refusal


def admission(most_open: int = 2, most_waiting: int = 4) -> Admission[str]:
    return Admission(most_open=most_open, most_waiting=most_waiting)


def refused(to: Admission[str], item: str, now: float = 0.0, **more: float | str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        to.offer(item, now, caller=str(more.pop("caller", item)), **more)  # type: ignore[arg-type]
    return caught.value


def test_as_many_as_may_be_open_begin_and_the_others_wait_their_turn() -> None:
    some = admission()
    for item in "abc":
        some.offer(item, 0.0, caller=item)
    assert list(some.begin(0.0)) == ["a", "b"]
    some.end("a", 1.0, served=True)
    assert list(some.begin(1.0)) == ["c"]
    assert (some.open, some.waiting) == (2, 0)


def test_callers_with_the_fewest_at_work_go_first_then_the_earliest_deadline() -> None:
    some = admission(most_open=1, most_waiting=8)
    some.offer("a1", 0.0, caller="a")
    assert list(some.begin(0.0)) == ["a1"]
    some.most_open = 2
    some.offer("a2", 0.1, caller="a", deadline_s=1.0)
    some.offer("b1", 0.2, caller="b", deadline_s=9.0)
    some.offer("c1", 0.3, caller="c", deadline_s=5.0)
    assert list(some.begin(0.4)) == ["c1"]
    some.most_open = 4
    assert list(some.begin(0.5)) == ["b1", "a2"]


def test_a_full_queue_refuses_and_says_when_one_will_have_left() -> None:
    """Public cases E1 and E9."""
    some = admission(most_open=2, most_waiting=2)
    for item in "abcd":
        some.offer(item, 0.0, caller=item)
        list(some.begin(0.0))
    assert refused(some, "e").reason == "queue"
    some.end("a", 4.0, served=True)
    list(some.begin(4.0))
    some.offer("f", 4.0, caller="f")
    late = refused(some, "g", 4.0)
    assert (late.reason, late.ahead) == ("queue", 2)
    assert late.retry_after_s == pytest.approx(4.0 * 3 / 2)


def test_a_burst_takes_every_place_before_anybody_is_refused() -> None:
    """Turns may be offered faster than they are begun."""
    some = admission(most_open=2, most_waiting=4)
    for item in "abcdef":
        some.offer(item, 0.0, caller="one of many" if item in "ab" else item)
    assert refused(some, "g").ahead == 4
    assert list(some.begin(0.0)) == ["a", "c"]
    alone = admission(most_open=2, most_waiting=4)
    for item in "abcd":
        alone.offer(item, 0.0, caller="a")
    assert refused(alone, "e", caller="a").reason == "caller"


def test_one_caller_cannot_take_all_the_places() -> None:
    some = admission(most_open=1, most_waiting=4)
    for number in range(3):
        some.offer(f"a{number}", 0.0, caller="a")
        list(some.begin(0.0))
    assert refused(some, "a3", caller="a").reason == "caller"
    some.offer("b", 0.0, caller="b")


def test_a_deadline_that_cannot_be_met_is_refused_at_once() -> None:
    some = admission(most_open=1)
    some.offer("a", 0.0, caller="a")
    list(some.begin(0.0))
    some.end("a", 2.0, served=True)
    some.offer("b", 2.0, caller="b")
    list(some.begin(2.0))
    hasty = refused(some, "c", 2.0, deadline_s=5.9)
    assert hasty.reason == "deadline"
    some.offer("d", 2.0, caller="d", deadline_s=6.1)


def test_who_comes_to_an_idle_server_is_always_tried() -> None:
    some = admission(most_open=1)
    some.offer("a", 0.0, caller="a")
    list(some.begin(0.0))
    some.end("a", 9.0, served=True)
    some.offer("b", 9.0, caller="b", deadline_s=9.5)


def test_a_stage_without_room_closes_the_door_for_as_long_as_it_says() -> None:
    some = admission()
    some.stage_is_full("think", 0.5)
    full = refused(some, "a", 0.2)
    assert (full.reason, full.stage) == ("stage", "think")
    assert full.retry_after_s == pytest.approx(0.3)
    some.offer("a", 0.6, caller="a")


def test_a_draining_door_serves_who_is_here_and_nobody_else() -> None:
    some = admission()
    some.offer("a", 0.0, caller="a")
    some.draining = True
    assert refused(some, "b").reason == "draining"
    assert list(some.begin(0.1)) == ["a"]


def test_who_waits_beyond_the_deadline_leaves() -> None:
    """Public case E1."""
    some = admission(most_open=1)
    for item, deadline_s in (("a", 9.0), ("b", 1.0), ("c", 3.0)):
        some.offer(item, 0.0, caller=item, deadline_s=deadline_s)
    assert list(some.begin(0.0)) == ["b"]
    assert some.next_deadline(0.5) == 3.0
    assert some.late(3.0) == ["c"]
    assert some.waiting == 1


def test_who_can_no_longer_be_answered_in_time_leaves_before_that_is_tried() -> None:
    some = admission(most_open=1)
    some.offer("a", 0.0, caller="a")
    list(some.begin(0.0))
    for item, deadline_s in (("b", 9.0), ("c", 4.5), ("d", 9.0)):
        some.offer(item, 0.1, caller=item, deadline_s=deadline_s)
    some.end("a", 2.0, served=True)
    assert list(some.begin(2.0)) == ["c"]
    some.end("c", 4.0, served=True)
    assert list(some.begin(4.0)) == ["b"]
    assert some.next_deadline(4.0) == 7.0
    assert some.late(6.9) == []
    assert some.late(7.0) == ["d"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 10)), max_size=20), st.integers(1, 4)
)
def test_a_newcomer_is_never_passed_over_for_a_caller_with_more_at_work(
    offers: list[tuple[str, float]], most_open: int
) -> None:
    some: Admission[int] = Admission(most_open=most_open, most_waiting=40)
    callers = {}
    for number, (caller, deadline_s) in enumerate(offers):
        callers[number] = caller
        some.offer(number, 0.0, caller=caller, deadline_s=deadline_s)
    begun = [callers[number] for number in some.begin(0.0)]
    left = list(callers.values())
    for caller in begun:
        left.remove(caller)
    for caller in left:
        assert all(begun.count(other) <= begun.count(caller) + 1 for other in begun)


class Anything(RuleBasedStateMachine):
    """Offers, ends and time in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.some: Admission[int] = Admission(most_open=3, most_waiting=4)
        self.now = 0.0
        self.offered: list[int] = []
        self.begun: list[int] = []
        self.gone: set[int] = set()

    @rule(caller=st.integers(0, 2), patience=st.floats(0.01, 20))
    def offer(self, caller: int, patience: float) -> None:
        item = len(self.offered)
        self.offered.append(item)
        try:
            self.some.offer(item, self.now, caller=caller, deadline_s=self.now + patience)
        except Refusal:
            self.gone.add(item)
        self.begun += self.some.begin(self.now)

    @rule(step=st.floats(0, 3))
    def wait(self, step: float) -> None:
        self.now += step
        self.gone.update(self.some.late(self.now))
        self.begun += self.some.begin(self.now)

    @rule(data=st.data(), served=st.booleans())
    def end(self, data: st.DataObject, served: bool) -> None:
        here = [item for item in self.offered if item not in self.gone]
        if here:
            item = data.draw(st.sampled_from(here))
            self.some.end(item, self.now, served=served)
            self.gone.add(item)
            self.begun += self.some.begin(self.now)

    @rule(pause=st.floats(0, 2))
    def full(self, pause: float) -> None:
        self.some.stage_is_full("think", self.now + pause)

    @invariant()
    def everybody_is_somewhere_once(self) -> None:
        self.some.check_integrity()
        here = [item for item in self.offered if item not in self.gone]
        assert len(here) == self.some.open + self.some.waiting
        assert len(set(self.begun)) == len(self.begun)
        assert self.some.open == self.some.most_open or not self.some.waiting


TestAnything = Anything.TestCase
