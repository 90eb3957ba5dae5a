"""Continuous batching against a model of the slot pool's memory, under random schedules."""

from dataclasses import dataclass, field
from random import Random

import pytest

from python_backends.scheduling.bytes import OverBudget
from python_backends.scheduling.continuous import Chunk, ContinuousBatch, Member, Plan

Token = tuple[int, int]
"""(member's payload, position)."""


def chunks(plan: Plan[int]) -> list[Chunk[int]]:
    """All prompts that a plan works on, in the order of their rows."""
    return [*([plan.chunk] if plan.chunk else []), *plan.joins]


@dataclass
class Pool:
    """The engine: does with rows of tokens what a plan says, and nothing else."""

    slots: int
    capacity: int
    rows: list[list[Token | None]] = field(init=False)

    def __post_init__(self) -> None:
        self.rows = [[None] * self.capacity for _ in range(self.slots)]

    def run(self, plan: Plan[int]) -> None:
        for move in plan.moves:
            self.rows[move.target][: move.length] = self.rows[move.source][: move.length]
        for row, chunk in enumerate(chunks(plan), start=len(plan.decode)):
            member, start = chunk.member, chunk.start
            assert chunk.row == row
            if chunk.is_first:
                self.rows[row][:start] = [(member.payload, at) for at in range(start)]
            self._expect(row, member, start)
            for at in range(start, start + chunk.count):
                self.rows[row][at] = (member.payload, at)
        for row, member in enumerate(plan.decode):
            self._expect(row, member, member.length)
            self.rows[row][member.length] = (member.payload, member.length)

    def _expect(self, row: int, member: Member[int], length: int) -> None:
        own = [(member.payload, at) for at in range(length)]
        assert self.rows[row][:length] == own, f"row {row} does not hold member {member.payload}"


@dataclass
class Schedule:
    """Random arrivals, cancels, ends and failed commands, with a record of everybody's fate."""

    random: Random
    batch: ContinuousBatch[int]
    pool: Pool
    cancels: float
    failures: float
    members: dict[int, Member[int]] = field(default_factory=dict)
    fates: dict[int, str] = field(default_factory=dict)
    started: list[int] = field(default_factory=list)
    largest: int = 0

    def arrive(self) -> None:
        name = len(self.members)
        prompt = self.random.randint(1, self.batch.capacity - 1)
        member = Member(
            name,
            prompt,
            self.random.randint(1, 2 * self.batch.capacity),
            prefix=self.random.choice([0, 0, self.random.randrange(prompt)]),
            nbytes=prompt,
        )
        self.members[name] = member
        self.batch.join(member)

    def end(self, member: Member[int], fate: str) -> None:
        assert member.payload not in self.fates, "ended twice"
        self.fates[member.payload] = fate

    def cancel_somebody(self) -> None:
        present = self.batch.members()
        if present:
            member = self.random.choice(present)
            self.batch.leave(member)
            self.end(member, "cancelled")

    def step(self) -> None:
        plan = self.batch.plan()
        if plan is None:
            assert not self.batch.members()
            return
        self._check(plan)
        self.pool.run(plan)
        if self.random.random() < self.failures:
            for member in self.batch.abort():
                self.end(member, "aborted")
            return
        self.batch.commit(plan)
        for member in plan.members:
            stopped = member.generated and self.random.random() < 0.02
            if member.exhausted or stopped:
                self.batch.leave(member)
                self.end(member, "done")

    def _check(self, plan: Plan[int]) -> None:
        """All rows decode in every command, beside one chunk at most."""
        assert plan.decode == tuple(self.batch.rows)
        self.largest = max(self.largest, len(plan.decode))
        assert plan.chunk or plan.decode
        assert sum(join.count for join in plan.joins) <= self.batch.join_tokens
        assert all(join.is_first and join.is_last for join in plan.joins)
        if plan.chunk is not None:
            beside = self.batch.prefill_chunk
            alone = self.batch.lone_chunk or beside
            assert 1 <= plan.chunk.count <= (beside if plan.decode else alone)
            assert plan.chunk.start + plan.chunk.count <= plan.chunk.member.prompt
        self.started += [one.member.payload for one in chunks(plan) if one.is_first]


@pytest.mark.parametrize("seed", range(12))
def test_random_schedules_keep_every_row_and_end_everybody_once(seed: int) -> None:
    """Public case G15: 30 000 steps."""
    random = Random(seed)
    slots, capacity = random.choice([(1, 8), (2, 12), (5, 24), (8, 40)])
    schedule = Schedule(
        random,
        ContinuousBatch(
            slots,
            capacity,
            prefill_chunk=random.choice([1, 3, 16]),
            join_tokens=random.choice([0, 4, 30]),
            lone_chunk=random.choice([0, 5]),
            byte_limit=random.choice([0, 2 * capacity]),
        ),
        Pool(slots, capacity),
        cancels=random.choice([0.0, 0.02, 0.3]),
        failures=random.choice([0.0, 0.01]),
    )
    for tick in range(2500):
        while tick < 2000 and random.random() < 0.2:
            schedule.arrive()
        if random.random() < schedule.cancels:
            schedule.cancel_somebody()
            schedule.batch.check_integrity()
        schedule.step()
        schedule.batch.check_integrity()
    while schedule.batch.members():
        schedule.step()
        schedule.batch.check_integrity()
    assert schedule.fates.keys() == schedule.members.keys()
    assert schedule.started == sorted(set(schedule.started)), "not in the order of arrival"
    assert schedule.largest >= min(slots, 2 if schedule.batch.byte_limit else 3)
    assert schedule.batch.plan() is None
    assert schedule.batch.held_bytes == 0


def test_a_member_decodes_while_others_are_prefilled() -> None:
    batch: ContinuousBatch[str] = ContinuousBatch(slots=2, capacity=64, prefill_chunk=4)
    batch.join(Member("first", prompt=4, max_new=30))
    batch.join(Member("second", prompt=20, max_new=30))
    chunks = []
    for _ in range(6):
        plan = batch.plan()
        assert plan is not None
        chunks.append((plan.chunk.start, [one.payload for one in plan.decode]) if plan.chunk else 0)
        batch.commit(plan)
    assert chunks == [(0, []), *[(start, ["first"]) for start in (0, 4, 8, 12, 16)]]
    assert [member.payload for member in batch.rows] == ["first", "second"]


def test_a_leaver_is_replaced_by_the_last_row_and_prefill_follows() -> None:
    batch: ContinuousBatch[str] = ContinuousBatch(slots=4, capacity=64, prefill_chunk=8)
    for name in ("a", "b", "c"):
        batch.join(Member(name, prompt=8, max_new=30))
    batch.join(Member("d", prompt=16, max_new=30))
    for _ in range(4):
        plan = batch.plan()
        assert plan is not None
        batch.commit(plan)
    batch.leave(batch.rows[0])
    plan = batch.plan()
    assert plan is not None
    assert [(move.source, move.target) for move in plan.moves] == [(2, 0), (3, 2)]
    assert [member.payload for member in plan.decode] == ["c", "b"]
    assert plan.chunk is not None
    assert (plan.chunk.row, plan.chunk.start) == (2, 8)


def test_after_a_failed_command_those_who_wait_still_have_their_turn() -> None:
    batch: ContinuousBatch[str] = ContinuousBatch(slots=1, capacity=8, prefill_chunk=8)
    for name in ("running", "waiting"):
        batch.join(Member(name, prompt=2, max_new=2))
    assert batch.plan() is not None
    assert [member.payload for member in batch.abort()] == ["running"]
    plan = batch.plan()
    assert plan is not None
    assert plan.chunk is not None
    assert (plan.chunk.member.payload, plan.moves) == ("waiting", ())


def test_a_row_is_filled_to_its_last_token() -> None:
    """Public case G3.

    512 phonemes after a prompt of one token fit a row of 512: the last draw is not written.
    """
    batch: ContinuousBatch[str] = ContinuousBatch(slots=1, capacity=512, prefill_chunk=1)
    member = Member("long", prompt=1, max_new=600)
    batch.join(member)
    while not member.exhausted:
        plan = batch.plan()
        assert plan is not None
        batch.commit(plan)
        batch.check_integrity()
    assert (member.generated, member.length) == (512, 512)


@pytest.mark.parametrize("prompt", [0, -1, 8, 9])
def test_a_prompt_that_fits_no_row_is_refused(prompt: int) -> None:
    """Public case G3."""
    batch: ContinuousBatch[str] = ContinuousBatch(slots=1, capacity=8, prefill_chunk=8)
    with pytest.raises(ValueError, match="1 to 7 fit"):
        batch.join(Member("x", prompt=prompt, max_new=1))
    assert not batch.members()


def test_a_member_must_be_allowed_at_least_one_token() -> None:
    with pytest.raises(ValueError, match="max_new"):
        ContinuousBatch[str](1, 8, 8).join(Member("x", prompt=1, max_new=0))


@pytest.mark.parametrize("sizes", [(0, 8, 1), (1, 1, 1), (1, 8, 0)])
def test_a_pool_without_room_is_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        ContinuousBatch[str](*sizes)


def test_somebody_unknown_may_leave_without_harm() -> None:
    batch: ContinuousBatch[str] = ContinuousBatch(slots=1, capacity=8, prefill_chunk=8)
    batch.join(Member("here", prompt=1, max_new=1))
    batch.leave(Member("elsewhere", prompt=1, max_new=1))
    assert [member.payload for member in batch.members()] == ["here"]


def test_members_are_found_wherever_they_are() -> None:
    batch: ContinuousBatch[str] = ContinuousBatch(slots=2, capacity=16, prefill_chunk=2)
    for name in ("turn-1/a", "turn-2/b", "turn-1/c"):
        batch.join(Member(name, prompt=4, max_new=4))
    for _ in range(3):
        plan = batch.plan()
        assert plan is not None
        batch.commit(plan)
    assert len(batch.rows) == len(batch.waiting) == 1
    assert batch.prefilling is not None
    found = [one for one in batch.members() if one.payload.startswith("turn-1")]
    assert [member.payload for member in found] == ["turn-1/a", "turn-1/c"]


def test_short_prompts_join_one_step_together() -> None:
    batch: ContinuousBatch[int] = ContinuousBatch(8, 16, prefill_chunk=2, join_tokens=4)
    for name, prompt in enumerate([1, 2, 1, 2, 1]):
        batch.join(Member(name, prompt, max_new=4))
    plan = batch.plan()
    assert plan is not None
    assert [(one.member.payload, one.row) for one in chunks(plan)] == [(0, 0), (1, 1), (2, 2)]
    batch.commit(plan)
    assert [member.payload for member in batch.rows] == [0, 1, 2]
    assert len(batch.waiting) == 2


def test_nobody_joins_behind_an_unfinished_prompt() -> None:
    batch: ContinuousBatch[int] = ContinuousBatch(8, 16, prefill_chunk=2, join_tokens=4)
    batch.join(Member(0, 5, max_new=4))
    batch.join(Member(1, 1, max_new=4))
    plans = []
    for _ in range(3):
        plan = batch.plan()
        assert plan is not None
        batch.commit(plan)
        plans.append(len(plan.joins))
    assert plans == [0, 0, 1]


def test_two_batches_share_a_queue_and_nobody_is_served_twice() -> None:
    first = ContinuousBatch[str](1, 8, prefill_chunk=8)
    second = ContinuousBatch[str](1, 8, prefill_chunk=8, waiting=first.waiting)
    for name in ("a", "b", "c"):
        first.join(Member(name, prompt=2, max_new=4))
    plans = [batch.plan() for batch in (first, second, first, second)]
    assert [plan.chunk.member.payload for plan in plans[:2] if plan and plan.chunk] == ["a", "b"]
    assert [member.payload for member in first.waiting] == ["c"]


def test_owners_with_several_members_take_turns() -> None:
    batch = ContinuousBatch[str](8, 8, prefill_chunk=8)
    for name in ("a1", "a2", "a3", "b1", "c1"):
        batch.join(Member(name, prompt=1, max_new=4, owner=name[0]))
    served = []
    while (plan := batch.plan()) and plan.chunk:
        served.append(plan.chunk.member.payload)
        batch.commit(plan)
    assert served == ["a1", "b1", "c1", "a2", "a3"]


def test_what_is_restored_is_not_prefilled() -> None:
    batch = ContinuousBatch[str](2, 32, prefill_chunk=4)
    batch.join(Member("told before", prompt=10, max_new=4, prefix=8))
    plan = batch.plan()
    assert plan is not None
    assert plan.chunk is not None
    chunk = plan.chunk
    assert (chunk.start, chunk.count, chunk.is_first, chunk.is_last) == (8, 2, True, True)
    batch.commit(plan)
    assert batch.rows[0].length == 10


def test_whoever_needs_more_bytes_than_are_free_waits_and_nobody_passes() -> None:
    batch = ContinuousBatch[str](4, 32, prefill_chunk=8, byte_limit=100)
    for name, nbytes in (("small", 60), ("large", 90), ("tiny", 1)):
        batch.join(Member(name, prompt=2, max_new=2, nbytes=nbytes))
    plan = batch.plan()
    assert plan is not None
    batch.commit(plan)
    plan = batch.plan()
    assert plan is not None
    assert plan.chunk is None
    batch.leave(batch.rows[0])
    plan = batch.plan()
    assert plan is not None
    assert plan.chunk is not None
    assert plan.chunk.member.payload == "large"


def test_what_could_never_be_admitted_is_refused() -> None:
    batch = ContinuousBatch[str](4, 32, prefill_chunk=8, byte_limit=100)
    with pytest.raises(OverBudget, match="101 bytes"):
        batch.join(Member("huge", prompt=2, max_new=2, nbytes=101))
    with pytest.raises(ValueError, match="prefix"):
        batch.join(Member("known to its end", prompt=2, max_new=2, prefix=2))


@pytest.mark.parametrize(
    ("prompt", "counts"),
    [(16, [16]), (17, [15, 2]), (18, [16, 2]), (33, [16, 15, 2]), (1, [1]), (2, [2])],
)
def test_no_single_token_is_left_for_the_last_chunk(prompt: int, counts: list[int]) -> None:
    batch = ContinuousBatch[str](1, 64, prefill_chunk=16)
    batch.join(Member("x", prompt, max_new=1))
    found = []
    while batch.prefilling or batch.waiting:
        plan = batch.plan()
        assert plan is not None
        assert plan.chunk is not None
        found.append(plan.chunk.count)
        batch.commit(plan)
    assert found == counts
