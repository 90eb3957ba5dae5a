"""Continuous batching: members join and leave between any two steps.

Members live in the rows of a slot pool. Rows 0..n-1 are the decode batch, row n is the one member
being prefilled, chunk by chunk; a leaver's hole is filled by moving the last row into it.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from python_backends.scheduling.bytes import UNBOUNDED, ByteBudget, OverBudget, Usage
from python_backends.scheduling.fair import FairQueue

KV = "kv"
T = TypeVar("T")


@dataclass(eq=False)
class Member(Generic[T]):
    """One sequence: `prompt` tokens to prefill, then at most `max_new` tokens to decode."""

    payload: T
    prompt: int
    max_new: int
    owner: Hashable = None
    """Whom it is for; owners with several members take turns. None: itself alone."""

    prefix: int = 0
    """Tokens of the prompt that are restored before its first chunk."""

    nbytes: int = 0
    """What it takes of the batch's `byte_limit` from its admission on."""

    length: int = 0
    """Tokens in the row so far."""

    generated: int = 0

    @property
    def exhausted(self) -> bool:
        """No token may follow the one just generated."""
        return self.generated >= self.max_new


@dataclass(frozen=True)
class Move:
    """Copy `length` tokens of row `source` over row `target`."""

    source: int
    target: int
    length: int


@dataclass(frozen=True)
class Chunk(Generic[T]):
    """Prompt tokens [start, start + count) of a member, written to `row`."""

    member: Member[T]
    row: int
    start: int
    count: int

    @property
    def is_first(self) -> bool:
        return self.start == self.member.prefix

    @property
    def is_last(self) -> bool:
        return self.start + self.count == self.member.prompt


@dataclass(frozen=True)
class Plan(Generic[T]):
    """One engine command: the moves, at most one chunk, whole short prompts, a step of `decode`."""

    moves: tuple[Move, ...]
    chunk: Chunk[T] | None
    decode: tuple[Member[T], ...]
    joins: tuple[Chunk[T], ...] = ()
    """Further prompts, each whole, in the rows behind the chunk."""

    @property
    def members(self) -> list[Member[T]]:
        """Everybody who takes part."""
        chunks = [*([self.chunk] if self.chunk else []), *self.joins]
        return [*self.decode, *(chunk.member for chunk in chunks)]


@dataclass
class ContinuousBatch(Generic[T]):
    """Who decodes, who is prefilled, who waits. `slots` rows of `capacity` tokens each.

    Several batches may share one queue `waiting`; whoever has room first takes the next. Between
    two decode steps at most `prefill_chunk` tokens of one prompt are prefilled, and beside its end
    up to `join_tokens` tokens of further prompts that are short enough to be taken whole.
    """

    slots: int
    capacity: int
    prefill_chunk: int
    join_tokens: int = 0
    lone_chunk: int = 0
    """Tokens of a chunk while nobody decodes, who would have to wait; 0: `prefill_chunk`."""

    byte_limit: int = 0
    """Bytes that those admitted may take in all; 0: as many as `slots` of them do."""

    waiting: FairQueue[Member[T]] = field(default_factory=FairQueue)
    rows: list[Member[T]] = field(default_factory=list)
    prefilling: Member[T] | None = None
    joining: list[Member[T]] = field(default_factory=list)
    """Taken whole by the command that is being run."""

    _moves: list[Move] = field(default_factory=list)
    _bytes: ByteBudget[str] = field(init=False)
    """Taken by a member from its admission until it leaves."""

    def __post_init__(self) -> None:
        limit = self.byte_limit or UNBOUNDED
        self._bytes = ByteBudget(limit, {KV: limit})
        if min(self.slots, self.prefill_chunk) < 1 or self.capacity < 2:
            raise ValueError("slots and prefill_chunk must be at least 1, capacity at least 2")

    def join(self, member: Member[T]) -> None:
        """Queue a member; owners are prefilled in turns. ValueError if it cannot fit a row,
        OverBudget if its bytes can never be had.

        `max_new` is cut to what the row holds; the last token drawn is never written to it.
        """
        if not 0 < member.prompt < self.capacity:
            raise ValueError(f"a prompt of {member.prompt} tokens; 1 to {self.capacity - 1} fit")
        if member.max_new < 1:
            raise ValueError("max_new must be at least 1")
        if not 0 <= member.prefix < member.prompt:
            raise ValueError(f"a prefix of {member.prefix} of {member.prompt} tokens")
        if 0 < self.byte_limit < member.nbytes:
            raise OverBudget(KV, member.nbytes, self._bytes.free(KV), self.byte_limit)
        member.max_new = min(member.max_new, self.capacity - member.prompt + 1)
        self.waiting.append(member, member if member.owner is None else member.owner)

    def plan(self) -> Plan[T] | None:
        """The next command, or None when there is nothing to do."""
        self._admit()
        if self.prefilling is None and not self.rows:
            self._moves.clear()
            return None
        moves, self._moves = tuple(self._moves), []
        chunk = self._chunk()
        return Plan(moves, chunk, tuple(self.rows), self._joins(chunk))

    def commit(self, plan: Plan[T]) -> None:
        """Account for a command that succeeded: every row grew by what was written to it."""
        for member in plan.decode:
            member.length += 1
            member.generated += 1
        for chunk in (*([plan.chunk] if plan.chunk else []), *plan.joins):
            chunk.member.length += chunk.count
            if chunk.is_last:
                chunk.member.generated += 1
                self.rows.append(chunk.member)
        if plan.chunk is not None and plan.chunk.is_last:
            self.prefilling = None
        self.joining.clear()

    def leave(self, member: Member[T]) -> None:
        """Take a member out between two commands, wherever it is; unknown members are ignored."""
        if member is self.prefilling:
            self.prefilling = None
            self._bytes.give_back(KV, member.nbytes)
        elif member in self.rows:
            self._close_gap(self.rows.index(member))
            self._bytes.give_back(KV, member.nbytes)
        else:
            self.waiting.remove(member)

    def abort(self) -> list[Member[T]]:
        """After a failed command: take out everybody whose row may have been written."""
        gone = self.running()
        self._bytes.give_back(KV, self.held_bytes)
        self.rows.clear()
        self.joining.clear()
        self.prefilling = None
        self._moves.clear()
        return gone

    def running(self) -> list[Member[T]]:
        """Those who have a row: decoding, or being prefilled."""
        prefilling = [self.prefilling] if self.prefilling else []
        return [*self.rows, *prefilling, *self.joining]

    def members(self) -> list[Member[T]]:
        """Everybody: those who have a row, and those who wait."""
        return [*self.running(), *self.waiting]

    @property
    def held_bytes(self) -> int:
        """Bytes of those who have a row."""
        return self.usage().used

    def usage(self) -> Usage:
        """Bytes of those who have a row, now and at most."""
        return self._bytes.usage()[KV]

    def check_integrity(self) -> None:
        """Rows fit the pool, nobody is in two places, every row is as long as its tokens."""
        everybody = self.members()
        assert len({id(member) for member in everybody}) == len(everybody)
        assert len(self.running()) <= self.slots
        self._bytes.check_integrity()
        assert self.held_bytes == sum(member.nbytes for member in self.running())
        self.waiting.check_integrity()
        for member in self.rows:
            assert member.length == member.prompt + member.generated - 1 <= self.capacity
        if self.prefilling is not None:
            assert self.prefilling.length < self.prefilling.prompt
        assert all(member.length == 0 for member in self.waiting)

    def _admit(self) -> None:
        if self.prefilling is None and len(self.rows) < self.slots and self._has_room():
            self.prefilling = self._admitted()

    def _admitted(self) -> Member[T]:
        """The next one, who takes its bytes."""
        member = self.waiting.popleft()
        self._bytes.take(KV, member.nbytes)
        member.length = member.prefix
        return member

    def _has_room(self) -> bool:
        """There is a next one, and bytes for it; nobody passes somebody who waits for bytes."""
        first = self.waiting.first()
        return first is not None and first.nbytes <= self._bytes.free(KV)

    def _chunk(self) -> Chunk[T] | None:
        """The next tokens of the prompt. No single one is left for the last chunk: an engine
        computes one token as a decode step, which rounds otherwise than a chunk does."""
        if self.prefilling is None:
            return None
        start, left = self.prefilling.length, self.prefilling.prompt - self.prefilling.length
        most = self.prefill_chunk if self.rows else self.lone_chunk or self.prefill_chunk
        count = min(most, left)
        if left - count == 1 and count > 2:
            count -= 1
        return Chunk(self.prefilling, len(self.rows), start, count)

    def _joins(self, chunk: Chunk[T] | None) -> tuple[Chunk[T], ...]:
        """Whole prompts beside `chunk`, in the order of arrival; none beside an unfinished one,
        which must stay in the row after the last."""
        if chunk is not None and not chunk.is_last:
            return ()
        row = len(self.rows) + (chunk is not None)
        left, joins = self.join_tokens, []
        while row < self.slots and self._has_room() and self._next_tokens() <= left:
            member = self._admitted()
            left -= member.prompt - member.prefix
            self.joining.append(member)
            joins.append(Chunk(member, row, member.prefix, member.prompt - member.prefix))
            row += 1
        return tuple(joins)

    def _next_tokens(self) -> int:
        """Tokens to prefill of who is next."""
        first = self.waiting.first()
        return 0 if first is None else first.prompt - first.prefix

    def _close_gap(self, row: int) -> None:
        """Fill `row` with the last one; the row being prefilled stays the one after the last."""
        last = len(self.rows) - 1
        filler = self.rows.pop()
        if row != last:
            self.rows[row] = filler
            self._moves.append(Move(last, row, filler.length))
        if self.prefilling is not None and self.prefilling.length > self.prefilling.prefix:
            self._moves.append(Move(last + 1, last, self.prefilling.length))
