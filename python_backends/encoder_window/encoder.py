"""One pass of the encoder model for several windows; a bad one fails alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.errors import StageError, StageFailed

Call = Callable[
    [str, Mapping[str, NDArray[Any]], Sequence[str]],
    dict[str, NDArray[Any]],
]
"""`bridge.call`."""

Outcome = NDArray[np.float32] | StageError


class Encoder:
    """Calls `model`, whose states have `width` channels, by BLS."""

    def __init__(self, call: Call, model: str, width: int) -> None:
        self._call = call
        self._model = model
        self._width = width

    def encode(self, mels: Sequence[NDArray[np.float32]]) -> list[Outcome]:
        """Mels [mels, T] of one T, to hidden states [T / 2, width] or the error of that one."""
        try:
            return self._together(mels)
        except StageError as error:
            if len(mels) == 1:
                return [error]
        return [self._alone(mel) for mel in mels]

    def _alone(self, mel: NDArray[np.float32]) -> Outcome:
        try:
            return self._together([mel])[0]
        except StageError as error:
            return error

    def _together(self, mels: Sequence[NDArray[np.float32]]) -> list[Outcome]:
        batch = np.stack(mels)
        hidden = self._call(self._model, {"MEL": batch}, ["HIDDEN"])["HIDDEN"]
        expected = (len(batch), batch.shape[2] // 2, self._width)
        if hidden.shape != expected:
            raise StageFailed(
                f"model {self._model!r} answered HIDDEN {list(hidden.shape)} to MEL "
                f"{list(batch.shape)}; {list(expected)} was expected"
            )
        return [self._finite(one) for one in hidden]

    def _finite(self, states: NDArray[np.float32]) -> Outcome:
        """A row that overflowed is an error of its own, not of the batch."""
        if np.isfinite(states).all():
            return states
        return StageFailed(f"model {self._model!r} answered HIDDEN with NaN or infinite values")
