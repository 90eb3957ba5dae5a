"""The flow decoder run step by step: members at different times share one evaluation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from python_backends.diffusion_lock.flow import Member, Outcome, score_of, spoken, start
from python_backends.diffusion_lock.graphs import FlowGraphs, stacked
from python_backends.diffusion_lock.score import Key
from python_backends.diffusion_lock.solver import SOLVERS, Path
from python_backends.errors import StageError

M = TypeVar("M", bound=Member)


class Trajectory:
    """A member between noise and frames, at its own length: padding is a matter of each call."""

    def __init__(self, path: Path, condition: NDArray[np.float32]) -> None:
        self.condition = condition
        """[T, 128], the same at every step."""

        self.arrived: NDArray[np.float32] | None = None
        """[T, 66] at time 1, once there."""

        self._path = path
        self.x, self.t = next(path)

    def advance(self, velocity: NDArray[np.float32]) -> None:
        """Go on with the velocity [T, 66] at (x, t)."""
        try:
            self.x, self.t = self._path.send(velocity)
        except StopIteration as end:
            self.arrived = end.value


@dataclass(eq=False)
class Flight(Generic[M]):
    """A member, and how far it has come; touched by the compute thread alone once it runs."""

    member: M
    key: Key
    trajectory: Trajectory | None = None

    @property
    def evaluations(self) -> int:
        """From noise to frames."""
        return self.key.steps * SOLVERS[self.key.solver].evaluations

    @property
    def moving(self) -> Trajectory:
        """Its trajectory, once it has begun."""
        assert self.trajectory is not None, "a member was moved before it had a condition"
        return self.trajectory


Flights = Sequence[Flight[M]]


class FlowSteps(Generic[M]):
    """Makes one evaluation of several members; who has just come gets its condition first."""

    def __init__(self, graphs: FlowGraphs) -> None:
        self._graphs = graphs
        self._seated: list[Trajectory] = []
        self._condition: NDArray[np.float32] | None = None

    def advance(self, flights: Flights[M]) -> list[Outcome | None]:
        """The frames of each that has arrived, or its error; None for one that goes on."""
        newcomers = [one for one in flights if one.trajectory is None]
        faults = _alone_if_not_together(self._begin, newcomers)
        faults |= {one: one.member.error for one in flights if one.member.error is not None}
        moving = [one for one in flights if one not in faults]
        faults |= _alone_if_not_together(self._move, moving)
        return [faults[one] if one in faults else _outcome(one) for one in flights]

    def _begin(self, flights: Flights[M]) -> None:
        scores = [score_of(one.member) for one in flights]
        conditions = self._graphs.condition(scores)
        for row, one in enumerate(flights):
            path = SOLVERS[one.key.solver].path(start(one.member), one.key.steps)
            one.trajectory = Trajectory(path, conditions[row, : scores[row].frames].copy())

    def _move(self, flights: Flights[M]) -> None:
        moving = [one.moving for one in flights]
        times = np.array([one.t for one in moving], np.float32)
        frames = [len(one.x) for one in moving]
        x = stacked([one.x for one in moving])
        velocity = self._graphs.velocity(x, times, self._conditions(moving), frames)
        for row, one in enumerate(moving):
            one.advance(velocity[row, : frames[row]])

    def _conditions(self, moving: list[Trajectory]) -> NDArray[np.float32]:
        """[B, padded frames, 128]; made anew when members have come or gone."""
        if self._condition is None or self._seated != moving:
            self._seated = moving
            self._condition = stacked([one.condition for one in moving])
        return self._condition


def _alone_if_not_together(
    do: Callable[[Flights[M]], None], flights: Flights[M]
) -> dict[Flight[M], StageError]:
    """Do it for all at once; if that fails, for each alone, so that only those fail who must."""
    try:
        if flights:
            do(flights)
        return {}
    except StageError as error:
        if len(flights) == 1:
            return {flights[0]: error}
    parts = [_alone_if_not_together(do, [one]) for one in flights]
    return {one: error for part in parts for one, error in part.items()}


def _outcome(flight: Flight[M]) -> Outcome | None:
    arrived = flight.moving.arrived
    return None if arrived is None else spoken(arrived, score_of(flight.member))
