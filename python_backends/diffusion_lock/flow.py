"""The flow decoder run for a locked batch; a member that fails fails alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.diffusion_lock.noise import Stream, normal
from python_backends.diffusion_lock.piece import Piece
from python_backends.diffusion_lock.score import Key, Score
from python_backends.diffusion_lock.solver import SOLVERS
from python_backends.errors import Cancelled, StageError, StageFailed
from python_backends.speech import CHANNELS, LATENT

Call = Callable[
    [str, Mapping[str, NDArray[Any]], Sequence[str]],
    dict[str, NDArray[Any]],
]
"""`bridge.call`."""

Outcome = NDArray[np.float32] | StageError

ROUNDING = 16
"""Batches are padded to multiples of this many frames, so that few shapes occur."""

CONDITION_WIDTH = 128
PADDING_PITCH = -1
"""Marks a phoneme that is padding."""

QUIETEST_RMS = 1e-3
"""Latents have unit variance each; all of them near zero is not speech."""


class FlowDecoder:
    """Calls the condition model once and the step model once per velocity evaluation."""

    def __init__(self, call: Call, condition_model: str, step_model: str) -> None:
        self._call = call
        self._condition_model = condition_model
        self._step_model = step_model

    def decode(self, key: Key, pieces: Sequence[Piece]) -> list[Outcome]:
        """Frames [T, 66] of each piece, or its error."""
        try:
            return self._together(key, pieces)
        except StageError as error:
            if len(pieces) == 1:
                return [error]
        return [self._alone(key, piece) for piece in pieces]

    def _alone(self, key: Key, piece: Piece) -> Outcome:
        try:
            return self._together(key, [piece])[0]
        except StageError as error:
            return error

    def _together(self, key: Key, pieces: Sequence[Piece]) -> list[Outcome]:
        scores = list(map(_score, pieces))
        length = np.array([[score.frames] for score in scores], np.int64)
        rows = -(-int(length.max()) // ROUNDING) * ROUNDING
        condition = self._condition(scores, rows)

        def velocity(x: NDArray[np.float32], t: NDArray[np.float32]) -> NDArray[np.float32]:
            if all(piece.error for piece in pieces):
                raise Cancelled("nobody waits for this batch any more")
            inputs: dict[str, NDArray[Any]] = {
                "X": x,
                "TIME": t[:, None],
                "CONDITION": condition,
                "LENGTH": length,
            }
            return self._one(self._step_model, inputs, "VELOCITY", x.shape)

        x = SOLVERS[key.solver](velocity, _start(pieces, scores, rows), key.steps)
        return [_sound(x[row, score.breath : score.frames]) for row, score in enumerate(scores)]

    def _condition(self, scores: Sequence[Score], rows: int) -> NDArray[np.float32]:
        """[B, rows, 128]."""
        phonemes = max(len(score.phoneme) for score in scores)
        inputs: dict[str, NDArray[Any]] = {
            "PHONEME": np.zeros((len(scores), phonemes), np.int64),
            "PITCH": np.full((len(scores), phonemes), PADDING_PITCH, np.int64),
            "FRAME_PHONEME": np.zeros((len(scores), rows), np.int64),
            "FRAME_POSITION": np.zeros((len(scores), rows, 3), np.float32),
        }
        for row, score in enumerate(scores):
            inputs["PHONEME"][row, : len(score.phoneme)] = score.phoneme
            inputs["PITCH"][row, : len(score.pitch)] = score.pitch
            inputs["FRAME_PHONEME"][row, : score.frames] = score.frame_phoneme
            inputs["FRAME_POSITION"][row, : score.frames] = score.frame_position
        shape = (len(scores), rows, CONDITION_WIDTH)
        return self._one(self._condition_model, inputs, "CONDITION", shape)

    def _one(
        self, model: str, inputs: Mapping[str, NDArray[Any]], output: str, shape: tuple[int, ...]
    ) -> NDArray[np.float32]:
        """Call a model for one output of a known shape."""
        found: NDArray[np.float32] = self._call(model, inputs, [output])[output]
        if found.shape != shape:
            raise StageFailed(
                f"model {model!r} answered {output} {list(found.shape)}; {list(shape)} was expected"
            )
        return found


def _score(piece: Piece) -> Score:
    assert piece.score is not None, "a piece without sound was queued"
    return piece.score


def _start(pieces: Sequence[Piece], scores: Sequence[Score], rows: int) -> NDArray[np.float32]:
    """Noise at time 0, [B, rows, 66], zero on padding."""
    x = np.zeros((len(scores), rows, CHANNELS), np.float32)
    for row, (piece, score) in enumerate(zip(pieces, scores, strict=True)):
        seed = piece.request.options.seed
        x[row, : score.frames] = normal(seed, piece.number, Stream.FLOW, (score.frames, CHANNELS))
    return x


def _sound(frames: NDArray[np.float32]) -> Outcome:
    """`frames` where they can be speech: never silence, or worse, that claims to be an answer."""
    if not np.isfinite(frames).all():
        return StageFailed("the flow decoder gave frames that are not finite")
    if np.sqrt(np.mean(frames[:, :LATENT] ** 2)) < QUIETEST_RMS:
        return StageFailed("the flow decoder gave frames without content")
    return frames.copy()
