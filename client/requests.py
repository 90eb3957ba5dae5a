"""What a client sends to `turn`, `speak` and `transcribe`, as raw protobufs of tritonclient."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from client.traceparent import checked, new_traceparent
from python_backends import wire
from python_backends.errors import InvalidInput
from python_backends.ordering.exchange import history_json
from python_backends.ordering.prompt import Utterance

Floats = npt.NDArray[np.float32]
Tensors = dict[str, npt.NDArray[Any]]

REAL_OPTIONS = {"temperature", "speech_temperature", "top_p", "repetition_penalty"}
JSON_OPTIONS = {"logit_bias", "stop"}


@dataclass(frozen=True)
class TurnOptions:
    """What a caller may ask of a turn; None leaves the choice to the server.

    The names are those of the request parameters, which the server parses strictly.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] | None = None
    """Token id to what is added to its logit."""

    stop: Sequence[str] | None = None
    """The answer ends before any of these."""

    seed: int | None = None
    speech_temperature: float | None = None
    steps: int | None = None
    solver: str | None = None
    voice: str | None = None
    """"alto" or "baritone"."""

    stream: bool | None = None
    deadline_ms: int | None = None
    """The server gives the turn up after so long, or at once when it is sure to take longer."""

    caller: str | None = None
    """Who is to be treated fairly beside others; else the session."""


def new_turn_id() -> str:
    """An id that no other turn has."""
    return uuid.uuid4().hex


def turn_request(
    audio: Floats,
    history: Sequence[Utterance],
    *,
    turn_id: str | None,
    session_id: str | None,
    traceparent: str | None = None,
    options: TurnOptions | None,
) -> Any:
    """A ModelInferRequest of `turn`: AUDIO, and HISTORY and SESSION_ID where there are any.

    Raises InvalidInput unless `audio` is one row of samples and `traceparent` a trace context.
    """
    tensors: Tensors = {"AUDIO": _audio(audio)}
    if history:
        tensors["HISTORY"] = _bytes(history_json(history))
    if session_id is not None:
        tensors["SESSION_ID"] = _bytes(session_id)
    return _request("turn", turn_id, tensors, options, traceparent)


def speak_request(
    text: str,
    *,
    turn_id: str | None,
    traceparent: str | None = None,
    options: TurnOptions | None,
) -> Any:
    """A ModelInferRequest of `speak`."""
    return _request("speak", turn_id, {"TEXT": _bytes(text)}, options, traceparent)


def transcribe_request(audio: Floats, *, turn_id: str | None, min_frames: int | None = None) -> Any:
    """A ModelInferRequest of `transcribe`; InvalidInput unless `audio` is one row of samples."""
    tensors: Tensors = {"AUDIO": _audio(audio)}
    turn = turn_id or new_turn_id()
    parameters = {} if min_frames is None else {"min_frames": min_frames}
    return wire.to_request("transcribe", tensors, turn=turn, parameters=parameters, streamed=False)


def traceparent_of(request: Any) -> str:
    """The trace context that a turn is sent with."""
    return str(request.parameters["traceparent"].string_param)


def _audio(audio: Floats) -> Floats:
    if audio.ndim != 1:
        raise InvalidInput(f"audio has shape {list(audio.shape)}; [samples] is accepted")
    return np.ascontiguousarray(audio[None], np.float32)


def _bytes(text: str) -> npt.NDArray[np.object_]:
    return np.array([[text.encode()]], dtype=np.object_)


def _request(
    model: str,
    turn_id: str | None,
    tensors: Tensors,
    options: TurnOptions | None,
    traceparent: str | None,
) -> Any:
    turn = turn_id or new_turn_id()
    context = checked(traceparent) if traceparent else new_traceparent(turn)
    parameters = {**chosen_options(options or TurnOptions()), "traceparent": context}
    return wire.to_request(model, tensors, turn=turn, parameters=parameters)


def chosen_options(options: TurnOptions) -> dict[str, Any]:
    """The options that the caller set; real numbers as strings, for want of a double, and what is
    no single value as JSON."""
    chosen = {key: value for key, value in asdict(options).items() if value is not None}
    for key in REAL_OPTIONS & chosen.keys():
        chosen[key] = repr(float(chosen[key]))
    for key in JSON_OPTIONS & chosen.keys():
        chosen[key] = json.dumps(chosen[key])
    return chosen
