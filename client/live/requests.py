"""What a client sends to `live` and `listen`, as raw protobufs of tritonclient."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from python_backends import wire
from python_backends.errors import InvalidInput
from python_backends.ordering.exchange import history_json
from python_backends.ordering.prompt import Utterance

SILENCE = bytes(2)
"""One sample: the server (2.51) refuses a request without any input, as the last one of a call
would be, and never answers one whose only input is empty."""


def chunk_request(
    model: str,
    call_id: str,
    number: int,
    pcm: bytes,
    *,
    end: bool = False,
    report: Mapping[str, Any] | None = None,
    history: Sequence[Utterance] = (),
    parameters: Mapping[str, Any] | None = None,
) -> Any:
    """Chunk `number` of a call; the first, 0, begins it and bears its id.

    The id of the call is that of the sequence as well, so that no two calls share one.
    """
    tensors: dict[str, Any] = {}
    if not pcm and report is None:
        pcm = SILENCE
    if pcm:
        tensors["PCM"] = np.frombuffer(pcm, np.uint8)[None]
    if report is not None:
        tensors["REPORT"] = _text(json.dumps(dict(report)))
    if history:
        tensors["HISTORY"] = _text(history_json(history))
    given = {
        **(parameters or {}),
        "sequence_id": call_id,
        "sequence_start": number == 0,
        "sequence_end": end,
    }
    name = f"{call_id}/{number}" if number else call_id
    return wire.to_request(model, tensors, turn=name, parameters=given)


def pcm_bytes(pcm: bytes | npt.NDArray[np.int16]) -> bytes:
    """Little-endian 16 bit samples; InvalidInput for an array of anything else."""
    if not isinstance(pcm, np.ndarray):
        return bytes(pcm)
    if pcm.ndim != 1 or pcm.dtype.kind != "i" or pcm.dtype.itemsize != 2:
        raise InvalidInput(
            f"sound is {pcm.dtype.name} {list(pcm.shape)}; int16 [samples] is accepted"
        )
    return pcm.astype("<i2", copy=False).tobytes()


def _text(value: str) -> Any:
    return np.array([[value.encode()]], dtype=np.object_)
