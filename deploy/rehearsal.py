"""One real request for what a probe cannot cover: the front door and the ensembles.

A short recorded order goes through `turn` and `transcribe`, a word through `speak`; behind them
every stage computes once, for real, before the first caller does.
"""

import wave
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends import wire

ORDER = Path(__file__).parents[1] / "samples" / "order-3.wav"
INT16_FULL_SCALE = 32768


def requests(models: Iterable[str]) -> Iterator[Any]:
    """ModelInferRequests for those of `models` that speak or listen to a caller."""
    scripts = {"turn": _audio, "transcribe": _audio, "speak": _text}
    for model in models:
        if model in scripts:
            yield wire.to_request(model, scripts[model](), turn=f"rehearsal-{model}", parameters={})


def _audio() -> dict[str, NDArray[Any]]:
    with wave.open(str(ORDER)) as recording:
        samples = np.frombuffer(recording.readframes(recording.getnframes()), "<i2")
    return {"AUDIO": samples.astype(np.float32)[None] / INT16_FULL_SCALE}


def _text() -> dict[str, NDArray[Any]]:
    return {"TEXT": np.array([[b"Welcome!"]], np.object_)}
