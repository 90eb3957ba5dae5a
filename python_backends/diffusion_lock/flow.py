"""The flow decoder run for a locked batch; a member that fails fails alone."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from python_backends.diffusion_lock.graphs import FlowGraphs, stacked
from python_backends.diffusion_lock.noise import Stream, normal
from python_backends.diffusion_lock.score import Key, Score
from python_backends.diffusion_lock.solver import SOLVERS
from python_backends.errors import Cancelled, StageError, StageFailed
from python_backends.speech import CHANNELS, LATENT

Outcome = NDArray[np.float32] | StageError
"""Frames [T, 66], or why there are none."""

QUIETEST_RMS = 1e-3
"""Latents have unit variance each; all of them near zero is not speech."""


class Member(Protocol):
    """What a decoder must know of a piece."""

    number: int
    score: Score | None
    key: Key | None
    error: StageError | None
    """Why nobody waits for it any more."""

    @property
    def seed(self) -> int:
        """Of its noise."""


class FlowDecoder:
    """Takes a batch from noise to frames: one condition call, one step call an evaluation."""

    def __init__(self, graphs: FlowGraphs) -> None:
        self._graphs = graphs

    def decode(self, key: Key, members: Sequence[Member]) -> list[Outcome]:
        """Frames [T, 66] of each member, or its error."""
        try:
            return self._together(key, members)
        except StageError as error:
            if len(members) == 1:
                return [error]
        return [self._alone(key, member) for member in members]

    def _alone(self, key: Key, member: Member) -> Outcome:
        if member.error is not None:
            return member.error
        try:
            return self._together(key, [member])[0]
        except StageError as error:
            return error

    def _together(self, key: Key, members: Sequence[Member]) -> list[Outcome]:
        scores = list(map(score_of, members))
        frames = [score.frames for score in scores]
        condition = self._graphs.condition(scores)

        def velocity(x: NDArray[np.float32], t: NDArray[np.float32]) -> NDArray[np.float32]:
            if all(member.error for member in members):
                raise Cancelled("nobody waits for this batch any more")
            return self._graphs.velocity(x, t, condition, frames)

        x = SOLVERS[key.solver](velocity, stacked(list(map(start, members))), key.steps)
        return [spoken(x[row, : frames[row]], score) for row, score in enumerate(scores)]


def score_of(member: Member) -> Score:
    """What a queued member says."""
    assert member.score is not None, "a piece without sound was queued"
    return member.score


def start(member: Member) -> NDArray[np.float32]:
    """Its noise at time 0, [T, 66]."""
    shape = (score_of(member).frames, CHANNELS)
    return normal(member.seed, member.number, Stream.FLOW, shape)


def spoken(frames: NDArray[np.float32], score: Score) -> Outcome:
    """`frames` [T, 66] without the breath, where they can be speech: never silence, or worse, that
    claims to be an answer."""
    said = frames[score.breath :]
    if not np.isfinite(said).all():
        return StageFailed("the flow decoder gave frames that are not finite")
    if np.sqrt(np.mean(said[:, :LATENT] ** 2)) < QUIETEST_RMS:
        return StageFailed("the flow decoder gave frames without content")
    return said.copy()
