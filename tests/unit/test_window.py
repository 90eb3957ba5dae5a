"""The conditional window, in fake time."""

from collections import Counter
from heapq import heappop, heappush
from random import Random

import pytest

from python_backends.scheduling.window import (
    NO_CAP,
    ConditionalWindow,
    Cost,
    Reason,
)

WINDOW_S = 0.006


def window(max_batch: int = 3) -> ConditionalWindow[int, str]:
    return ConditionalWindow(max_batch=max_batch, window_s=WINDOW_S)


def test_a_lone_caller_never_waits() -> None:
    policy = window()
    policy.build(100)
    assert policy.release(1.0, free_since=0.0) is None
    policy.ready("alone", 100, now=1.0)
    released = policy.release(1.0, free_since=0.0)
    assert released is not None
    assert (released.items, released.reason) == (("alone",), Reason.NO_COMPANION)
    assert policy.waiting == 0


def test_a_companion_being_built_is_waited_for() -> None:
    policy = window()
    for _ in range(2):
        policy.build(100)
    policy.ready("a", 100, now=1.0)
    assert policy.release(1.0, free_since=0.0) is None
    assert policy.next_deadline() == 1.0 + WINDOW_S
    policy.ready("b", 100, now=1.004)
    released = policy.release(1.004, free_since=0.0)
    assert released is not None
    assert (released.items, released.reason) == (("a", "b"), Reason.NO_COMPANION)


def test_a_companion_that_fails_to_build_is_waited_for_no_longer() -> None:
    policy = window()
    for _ in range(2):
        policy.build(100)
    policy.ready("a", 100, now=1.0)
    policy.abandon(100)
    released = policy.release(1.001, free_since=0.0)
    assert released is not None
    assert released.reason is Reason.NO_COMPANION


def test_nobody_waits_longer_than_the_window() -> None:
    policy = window()
    for _ in range(2):
        policy.build(100)
    policy.ready("a", 100, now=1.0)
    assert policy.release(1.0 + WINDOW_S - 1e-9, free_since=0.0) is None
    released = policy.release(1.0 + WINDOW_S, free_since=0.0)
    assert released is not None
    assert (released.items, released.reason) == (("a",), Reason.WINDOW)


def test_a_full_batch_leaves_whatever_is_being_built() -> None:
    policy = window(max_batch=2)
    for _ in range(4):
        policy.build(100)
    for name in ("a", "b", "c"):
        policy.ready(name, 100, now=1.0)
    released = policy.release(1.0, free_since=0.0)
    assert released is not None
    assert (released.items, released.reason) == (("a", "b"), Reason.FULL)
    assert policy.release(1.0, free_since=0.0) is None
    assert policy.waiting == 2


def test_while_the_encoder_is_busy_nothing_leaves_and_members_keep_joining() -> None:
    policy = window(max_batch=8)
    for name in "abcd":
        policy.build(100)
        policy.ready(name, 100, now=1.0)
        assert policy.release(50.0, free_since=None) is None
    policy.build(100)
    released = policy.release(2.0, free_since=2.0)
    assert released is not None
    assert (released.items, released.reason) == (("a", "b", "c", "d"), Reason.ENCODER_FREED)


def test_every_reason_is_counted_once_per_batch() -> None:
    policy = window(max_batch=1)
    policy.build(1)
    policy.ready("a", 1, now=0.0)
    policy.release(0.0, free_since=0.0)
    assert policy.reasons == Counter({Reason.FULL: 1})
    assert policy.release(0.0, free_since=0.0) is None
    assert policy.reasons.total() == 1


def test_buckets_do_not_wait_for_each_other() -> None:
    policy = window()
    for bucket in (100, 100, 200):
        policy.build(bucket)
    policy.ready("waits", 100, now=1.0)
    policy.ready("goes", 200, now=1.001)
    released = policy.release(1.001, free_since=0.0)
    assert released is not None
    assert (released.bucket, released.items) == (200, ("goes",))
    assert policy.release(1.001, free_since=0.0) is None


def test_of_two_batches_that_may_leave_the_older_goes_first() -> None:
    policy = window()
    for bucket in (200, 100):
        policy.build(bucket)
    policy.ready("older", 200, now=1.0)
    policy.ready("younger", 100, now=2.0)
    order = [policy.release(3.0, free_since=0.0) for _ in range(2)]
    assert [released.items for released in order if released] == [("older",), ("younger",)]


def test_dropped_items_are_returned_and_asked_about_once() -> None:
    """A caller's state may change between two questions; nobody may fall between them."""
    policy = window()
    for name in "abc":
        policy.build(100)
        policy.ready(name, 100, now=1.0)
    answers = iter([False, True, False, True, True, True])
    assert policy.drop(lambda _: next(answers)) == ["b"]
    policy.check_integrity()
    assert policy.waiting == 2
    assert policy.drop(lambda _: True) == ["a", "c"]
    policy.check_integrity()
    assert policy.next_deadline() is None


def capped(cap: Cost, *costs: Cost, building: int = 0) -> ConditionalWindow[int, int]:
    """Members 0, 1, ... of one bucket, ready at 1.0, and so many more being built."""
    policy: ConditionalWindow[int, int] = ConditionalWindow(max_batch=8, window_s=WINDOW_S, cap=cap)
    for _ in range(building + len(costs)):
        policy.build(100)
    for number, cost in enumerate(costs):
        policy.ready(number, 100, now=1.0, cost=cost)
    return policy


@pytest.mark.parametrize(
    ("cap", "cost"),
    [(Cost(6000, 1e9), Cost(3000, 10)), (Cost(1e9, 25), Cost(3000, 12))],
    ids=["frames", "bytes"],
)
def test_a_batch_leaves_without_the_member_that_would_exceed_its_cost(
    cap: Cost, cost: Cost
) -> None:
    policy = capped(cap, cost, cost, cost, building=1)
    released = policy.release(1.0, free_since=0.0)
    assert released is not None
    assert (released.items, released.reason) == ((0, 1), Reason.COST_CAP)
    assert policy.release(1.0, free_since=0.0) is None
    assert policy.waiting == 2


def test_nobody_is_waited_for_who_would_not_fit_any_more() -> None:
    policy = capped(Cost(6000, 100), Cost(3000), Cost(3000), building=3)
    released = policy.release(1.0, free_since=0.0)
    assert released is not None
    assert (released.items, released.reason) == ((0, 1), Reason.COST_CAP)


def test_somebody_who_would_still_fit_is_waited_for() -> None:
    policy = capped(Cost(6000, 100), Cost(3000), building=1)
    assert policy.release(1.0, free_since=0.0) is None


def test_a_member_above_the_cap_runs_alone_and_at_once() -> None:
    policy = capped(Cost(6000, 100), Cost(1000), Cost(9000), Cost(1000), Cost(1000), building=1)
    batches = [policy.release(1.0, free_since=0.0) for _ in range(3)]
    assert [batch and batch.items for batch in batches] == [(0,), (1,), None]
    assert policy.reasons == Counter({Reason.COST_CAP: 2})
    assert policy.waiting == 3


def test_a_lone_member_below_or_above_the_cap_has_no_companion() -> None:
    for frames in (1000, 9000):
        released = capped(Cost(6000, 100), Cost(frames)).release(1.0, free_since=0.0)
        assert released is not None
        assert released.reason is Reason.NO_COMPANION


def test_members_that_cost_exactly_the_cap_share_a_batch() -> None:
    released = capped(Cost(6000, 100), Cost(3000, 50), Cost(3000, 50)).release(1.0, free_since=0.0)
    assert released is not None
    assert (released.items, released.reason) == ((0, 1), Reason.NO_COMPANION)


@pytest.mark.parametrize("cap", [Cost(0, 10), Cost(10, 0), Cost(float("nan"), 10)])
def test_a_cap_that_nothing_fits_under_is_refused(cap: Cost) -> None:
    with pytest.raises(ValueError, match="nothing fits"):
        ConditionalWindow[int, str](max_batch=1, window_s=0.1, cap=cap)


@pytest.mark.parametrize(("max_batch", "window_s"), [(0, 0.1), (1, -0.1)])
def test_senseless_sizes_are_refused(max_batch: int, window_s: float) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ConditionalWindow[int, str](max_batch=max_batch, window_s=window_s)


def test_building_less_than_nothing_is_noticed() -> None:
    policy = window()
    policy.abandon(100)
    with pytest.raises(AssertionError):
        policy.check_integrity()


class Encoder:
    """A room of callers, builders and one encoder, in fake time: a queue of (when, what, whom)."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.max_batch = self.random.choice([1, 3, 8])
        self.cap = self.random.choice([NO_CAP, Cost(6000, 100), Cost(20_000, 30)])
        self.policy: ConditionalWindow[int, int] = ConditionalWindow(
            max_batch=self.max_batch, window_s=WINDOW_S, cap=self.cap
        )
        self.free_since: float | None = 0.0
        self.events: list[tuple[float, str, int]] = []
        self.bucket: dict[int, int] = {}
        self.ready_at: dict[int, float] = {}
        self.cost: dict[int, Cost] = {}
        self.gone: Counter[int] = Counter()
        self.batches: list[tuple[int, ...]] = []

    def run(self, members: int, gap_s: float) -> None:
        now = 0.0
        for member in range(members):
            now += self.random.expovariate(1 / gap_s)
            heappush(self.events, (now, "arrives", member))
        while self.events:
            at, what, member = heappop(self.events)
            getattr(self, what)(at, member)
            self.policy.check_integrity()
            self.let_go(at)

    def arrives(self, now: float, member: int) -> None:
        self.bucket[member] = self.random.choice([500, 1000, 3000])
        self.policy.build(self.bucket[member])
        heappush(self.events, (now + self.random.uniform(0, 0.012), "built", member))

    def built(self, now: float, member: int) -> None:
        if self.random.random() < 0.05:
            self.policy.abandon(self.bucket[member])
            self.gone[member] += 1
            return
        self.ready_at[member] = now
        self.cost[member] = Cost(self.bucket[member], self.random.choice([1, 10, 40]))
        self.policy.ready(member, self.bucket[member], now, self.cost[member])

    def looks_again(self, now: float, member: int) -> None:
        """The deadline that the loop had set."""

    def frees(self, now: float, member: int) -> None:
        self.free_since = now

    def let_go(self, now: float) -> None:
        if self.random.random() < 0.02:
            self.gone.update(self.policy.drop(lambda _: self.random.random() < 0.5))
        released = self.policy.release(now, free_since=self.free_since)
        if released is None:
            self.wait(now)
            return
        assert self.free_since is not None
        assert 1 <= len(released.items) <= self.max_batch
        assert {self.bucket[member] for member in released.items} == {released.bucket}
        cost = sum((self.cost[member] for member in released.items), Cost())
        assert cost.within(self.cap) or len(released.items) == 1
        for member in released.items:
            due = max(self.ready_at[member] + WINDOW_S, self.free_since)
            assert now <= due + 1e-9 or released.items[0] != member
        self.gone.update(released.items)
        self.batches.append(released.items)
        self.free_since = None
        heappush(self.events, (now + self.random.uniform(0.01, 0.04), "frees", -1))

    def wait(self, now: float) -> None:
        deadline = self.policy.next_deadline()
        if deadline is not None and self.free_since is not None:
            assert deadline > now, "somebody is due and did not leave"
            heappush(self.events, (deadline, "looks_again", -1))


@pytest.mark.parametrize("seed", range(8))
def test_in_random_traffic_everybody_leaves_once_and_in_time(seed: int) -> None:
    room = Encoder(seed)
    room.run(members=1500, gap_s=0.002 * (1 + seed))
    assert room.gone == Counter(dict.fromkeys(range(1500), 1))
    assert room.policy.waiting == 0
    assert room.policy.reasons.total() == len(room.batches)
    assert (room.policy.reasons[Reason.COST_CAP] > 0) == (room.cap != NO_CAP and room.max_batch > 1)


def test_back_pressure_makes_batches_form() -> None:
    room = Encoder(seed=2)
    room.max_batch = room.policy.max_batch = 8
    room.cap = room.policy.cap = NO_CAP
    room.run(members=2000, gap_s=0.004)
    assert sum(map(len, room.batches)) / len(room.batches) > 2
