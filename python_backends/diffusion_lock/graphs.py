"""The two graphs of the flow decoder, called for several rows that are padded to one length."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.diffusion_lock.score import Score
from python_backends.errors import StageFailed

Call = Callable[
    [str, Mapping[str, NDArray[Any]], Sequence[str]],
    dict[str, NDArray[Any]],
]
"""`bridge.call`."""

ROUNDING = 16
"""Batches are padded to multiples of this many frames, so that few shapes occur."""

CONDITION_WIDTH = 128
PADDING_PITCH = -1
"""Marks a phoneme that is padding."""


class FlowGraphs:
    """Calls the condition model and the step model, and checks what they answer."""

    def __init__(self, call: Call, condition_model: str, step_model: str) -> None:
        self._call = call
        self._condition_model = condition_model
        self._step_model = step_model

    def condition(self, scores: Sequence[Score]) -> NDArray[np.float32]:
        """[B, padded frames, 128]."""
        rows = padded(score.frames for score in scores)
        phonemes = max(len(score.phoneme) for score in scores)
        inputs: dict[str, NDArray[Any]] = {
            "PHONEME": np.zeros((len(scores), phonemes), np.int64),
            "PITCH": np.full((len(scores), phonemes), PADDING_PITCH, np.int64),
            "FRAME_PHONEME": np.zeros((len(scores), rows), np.int64),
            "FRAME_POSITION": np.zeros((len(scores), rows, 3), np.float32),
            "VOICE": np.array([[score.voice] for score in scores], np.int64),
            "STRIDE": np.array([[score.stride] for score in scores], np.int64),
        }
        for row, score in enumerate(scores):
            inputs["PHONEME"][row, : len(score.phoneme)] = score.phoneme
            inputs["PITCH"][row, : len(score.pitch)] = score.pitch
            inputs["FRAME_PHONEME"][row, : score.frames] = score.frame_phoneme
            inputs["FRAME_POSITION"][row, : score.frames] = score.frame_position
        shape = (len(scores), rows, CONDITION_WIDTH)
        return self._one(self._condition_model, inputs, "CONDITION", shape)

    def velocity(
        self,
        x: NDArray[np.float32],
        t: NDArray[np.float32],
        condition: NDArray[np.float32],
        frames: Sequence[int],
    ) -> NDArray[np.float32]:
        """Of x [B, T, 66] at times t [B]; zero on padding. `frames` [B] are valid."""
        inputs: dict[str, NDArray[Any]] = {
            "X": x,
            "TIME": t[:, None],
            "CONDITION": condition,
            "LENGTH": np.array(frames, np.int64)[:, None],
        }
        return self._one(self._step_model, inputs, "VELOCITY", x.shape)

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


def padded(frames: Iterable[int]) -> int:
    """Frames of a batch whose rows have so many."""
    return -(-max(frames) // ROUNDING) * ROUNDING


def stacked(rows: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Rows [T_i, C] as one batch [B, padded frames, C], zero on padding."""
    batch = np.zeros((len(rows), padded(map(len, rows)), rows[0].shape[1]), np.float32)
    for row, values in enumerate(rows):
        batch[row, : len(values)] = values
    return batch
