"""What a client sends to `turn`, `speak` and `transcribe`, as raw protobufs of tritonclient."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tritonclient.grpc import service_pb2
from tritonclient.utils import serialize_byte_tensor

from python_backends.ar_loop.prompt import Utterance
from python_backends.errors import InvalidInput

Floats = npt.NDArray[np.float32]
Tensors = dict[str, npt.NDArray[Any]]

REAL_OPTIONS = {"temperature", "speech_temperature"}


@dataclass(frozen=True)
class TurnOptions:
    """What a caller may ask of a turn; None leaves the choice to the server.

    The names are those of the request parameters, which the server parses strictly.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    speech_temperature: float | None = None
    steps: int | None = None
    solver: str | None = None
    stream: bool | None = None
    deadline_ms: int | None = None


def new_turn_id() -> str:
    """An id that no other turn has."""
    return uuid.uuid4().hex


def turn_request(
    audio: Floats,
    history: Sequence[Utterance],
    *,
    turn_id: str | None,
    session_id: str | None,
    options: TurnOptions | None,
) -> Any:
    """A ModelInferRequest of `turn`: AUDIO, and HISTORY and SESSION_ID where there are any.

    Raises InvalidInput unless `audio` is one row of samples.
    """
    tensors: Tensors = {"AUDIO": _audio(audio)}
    if history:
        lines = [{"role": line.role, "text": line.text} for line in history]
        tensors["HISTORY"] = _bytes(json.dumps(lines, ensure_ascii=False))
    if session_id is not None:
        tensors["SESSION_ID"] = _bytes(session_id)
    return _streamed(_request("turn", turn_id, tensors, options))


def speak_request(text: str, *, turn_id: str | None, options: TurnOptions | None) -> Any:
    """A ModelInferRequest of `speak`."""
    return _streamed(_request("speak", turn_id, {"TEXT": _bytes(text)}, options))


def transcribe_request(audio: Floats, *, turn_id: str | None) -> Any:
    """A ModelInferRequest of `transcribe`; InvalidInput unless `audio` is one row of samples."""
    return _request("transcribe", turn_id, {"AUDIO": _audio(audio)}, None)


def _audio(audio: Floats) -> Floats:
    if audio.ndim != 1:
        raise InvalidInput(f"audio has shape {list(audio.shape)}; [samples] is accepted")
    return np.ascontiguousarray(audio[None], np.float32)


def _bytes(text: str) -> npt.NDArray[np.object_]:
    return np.array([[text.encode()]], dtype=np.object_)


def _request(model: str, turn_id: str | None, tensors: Tensors, options: TurnOptions | None) -> Any:
    request = service_pb2.ModelInferRequest(model_name=model, id=turn_id or new_turn_id())
    for name, tensor in tensors.items():
        text = tensor.dtype == np.object_
        request.inputs.add(name=name, datatype="BYTES" if text else "FP32", shape=tensor.shape)
        raw = serialize_byte_tensor(tensor).item() if text else tensor.tobytes()
        request.raw_input_contents.append(raw)
    for key, value in _chosen(options or TurnOptions()).items():
        _set_parameter(request.parameters[key], value)
    return request


def _streamed(request: Any) -> Any:
    """The request, whose stream ends with a marker even where no tensors are left to send."""
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    return request


def _chosen(options: TurnOptions) -> dict[str, Any]:
    """The options that the caller set; real numbers as strings, for want of a double."""
    chosen = {key: value for key, value in asdict(options).items() if value is not None}
    for key in REAL_OPTIONS & chosen.keys():
        chosen[key] = repr(float(chosen[key]))
    return chosen


def _set_parameter(parameter: Any, value: int | str) -> None:
    match value:
        case bool():
            parameter.bool_param = value
        case int():
            parameter.int64_param = value
        case str():
            parameter.string_param = value
