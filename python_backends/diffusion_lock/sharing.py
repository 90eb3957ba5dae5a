"""How pieces share the flow decoder: a locked batch to its end, or one evaluation at a time."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from python_backends.diffusion_lock.flow import FlowDecoder, Member, Outcome
from python_backends.diffusion_lock.graphs import FlowGraphs
from python_backends.diffusion_lock.score import Key
from python_backends.diffusion_lock.steps import Flight, FlowSteps
from python_backends.scheduling.interleaved import InterleavedBatch
from python_backends.scheduling.locked import LockedBatch

M = TypeVar("M", bound=Member)
Most = Callable[[int], float]
"""Pieces of so many frames that may be computed together."""


def any_number(frames: int) -> float:
    """As many as there are."""
    return math.inf


@dataclass(frozen=True, eq=False)
class Work(Generic[M]):
    """What the compute thread is to do next, without a break."""

    members: tuple[M, ...]
    joined: tuple[M, ...]
    """Those of the members that begin with it."""

    run: Callable[[], Sequence[Outcome | None]]
    """An outcome of each member, None for one that goes on."""


class Sharing(Protocol[M]):
    """Who computes together: one work at a time."""

    def add(self, member: M, now: float) -> None:
        """Queue a member that has a score and a key."""

    def start(self, now: float) -> Work[M] | None:
        """The next work; None while one is under way or nobody is left."""

    def finish(self) -> None:
        """The work under way has been done."""

    def drop(self, unwanted: Callable[[M], bool]) -> None:
        """Forget members; those in the work under way stay in it to its end."""

    @property
    def running(self) -> tuple[M, ...]:
        """Members of the work under way."""

    @property
    def waiting(self) -> int:
        """Members that are not in the work under way."""

    def check_integrity(self) -> None:
        """See the policy."""


class Locked(Generic[M]):
    """Members of one key, from their first step to their last."""

    def __init__(
        self, graphs: FlowGraphs, *, max_batch: int, patience_s: float, most: Most = any_number
    ) -> None:
        self._flow = FlowDecoder(graphs)
        self._policy: LockedBatch[Key, M] = LockedBatch(
            max_batch=max_batch, patience_s=patience_s, most=lambda key: most(key.frames)
        )

    def add(self, member: M, now: float) -> None:
        """See Sharing."""
        self._policy.add(member, _key(member), now, later_piece=member.number > 0)

    def start(self, now: float) -> Work[M] | None:
        """See Sharing."""
        locked = self._policy.start(now)
        if locked is None:
            return None
        key, members = locked
        return Work(members, members, partial(self._flow.decode, key, members))

    def finish(self) -> None:
        """See Sharing."""
        self._policy.finish()

    def drop(self, unwanted: Callable[[M], bool]) -> None:
        """See Sharing."""
        self._policy.drop(unwanted)

    @property
    def running(self) -> tuple[M, ...]:
        """See Sharing."""
        return self._policy.running

    @property
    def waiting(self) -> int:
        """See Sharing."""
        return self._policy.waiting

    def check_integrity(self) -> None:
        """See Sharing."""
        self._policy.check_integrity()


class Interleaved(Generic[M]):
    """Members of one bucket, whatever their steps and solvers, for one evaluation."""

    def __init__(
        self, graphs: FlowGraphs, *, max_batch: int, patience_s: float, most: Most = any_number
    ) -> None:
        self._flow: FlowSteps[M] = FlowSteps(graphs)
        self._policy: InterleavedBatch[int, Flight[M]] = InterleavedBatch(
            max_batch=max_batch, patience_s=patience_s, most=most
        )

    def add(self, member: M, now: float) -> None:
        """See Sharing."""
        flight = Flight(member, _key(member))
        bucket, later = flight.key.frames, member.number > 0
        self._policy.add(flight, bucket, flight.evaluations, now, later_piece=later)

    def start(self, now: float) -> Work[M] | None:
        """See Sharing."""
        flights = self._policy.start(now)
        if flights is None:
            return None
        joined = tuple(one.member for one in flights if one.trajectory is None)
        return Work(self.running, joined, partial(self._flow.advance, flights))

    def finish(self) -> None:
        """See Sharing."""
        self._policy.finish()

    def drop(self, unwanted: Callable[[M], bool]) -> None:
        """See Sharing."""
        self._policy.drop(lambda flight: unwanted(flight.member))

    @property
    def running(self) -> tuple[M, ...]:
        """See Sharing."""
        return tuple(flight.member for flight in self._policy.running)

    @property
    def waiting(self) -> int:
        """See Sharing."""
        return self._policy.waiting

    def check_integrity(self) -> None:
        """See Sharing."""
        self._policy.check_integrity()


MODES: dict[str, type[Locked[Any]] | type[Interleaved[Any]]] = {
    "lock": Locked,
    "interleave": Interleaved,
}


def _key(member: Member) -> Key:
    assert member.key is not None, "a piece without sound was queued"
    return member.key
