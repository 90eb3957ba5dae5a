"""What `live` and `listen` tell, read from raw protobufs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from client.responses import Event, events_of
from python_backends import wire
from python_backends.errors import StageError, StageFailed, from_text

Floats = npt.NDArray[np.float32]


def no_sound() -> Floats:
    """float32 [0]."""
    return np.zeros(0, np.float32)


@dataclass(frozen=True, eq=False)
class LiveEvent:
    """One event. `type` is one of

    * speech_started, partial, speech_ended, transcript, no_speech: of what the caller says
    * audio, paused, resumed, interrupted, answered: of the answer to it
    * failed: a turn that could not be served, with its `error`
    * closed: the call is over

    `turn` names the turn of speech, and the answer to it. `more` is what else was told, in ms of
    the caller's sound (`at_ms` of speech) or of the answer's (`at_ms` of audio, `played_ms`).
    `speech` is float32 [samples] at `sample_rate_hz`, empty without sound. `spans` are those of the
    server's work on the way to it.
    """

    type: str
    turn: str
    text: str
    received_ns: int
    more: Mapping[str, Any] = field(default_factory=dict)
    speech: Floats = field(default_factory=no_sound, repr=False)
    sample_rate_hz: int = 0
    error: StageError | None = None
    spans: tuple[Event, ...] = field(default=(), repr=False)


def read_event(response: Any, received_ns: int) -> LiveEvent:
    """The event of a ModelInferResponse; StageFailed when it is none."""
    try:
        tensors = wire.to_arrays(response)
        told = json.loads(tensors.pop("EVENT").item())
        kind, turn = str(told.pop("type")), str(told.pop("turn", ""))
        speech = tensors["SPEECH"].reshape(-1) if "SPEECH" in tensors else no_sound()
        rate_hz = int(tensors["SAMPLE_RATE"].item()) if speech.size else 0
        spans = events_of(tensors)
    except (KeyError, ValueError, TypeError, AttributeError) as fault:
        raise StageFailed("a message of a live call is no event", stage="client") from fault
    text = str(told.pop("text", told.get("said", "")))
    error = told.pop("error", None)
    return LiveEvent(
        kind,
        turn,
        text,
        received_ns,
        told,
        speech,
        rate_hz,
        from_text(str(error), turn=turn) if error is not None else None,
        spans,
    )
