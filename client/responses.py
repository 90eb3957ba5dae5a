"""What `turn`, `speak` and `transcribe` answer, read from raw protobufs and checked.

Its ready-made stream clients will not do: grpc.aio has no end marker, and the sync one gives an
error without its request's id.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from python_backends import wire
from python_backends.errors import StageFailed, from_text
from python_backends.pieces import LAST_CHUNK, LAST_PIECE, NO_SOUND
from python_backends.speech import SAMPLE_RATE_HZ

Floats = npt.NDArray[np.float32]
Tensors = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Event:
    """One span of one stage's work; times are CLOCK_MONOTONIC of the server's machine.

    `more` is what else the stage told: members of the batch, the replica, ...
    """

    stage: str
    turn: str
    piece: int
    what: str
    start_ns: int
    end_ns: int
    more: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, eq=False)
class TurnChunk:
    """One response: some sound of one piece of the answer.

    `text` is the piece's, on its first chunk only; `heard` is what was understood, on the very
    first chunk only. `speech` is float32 [samples] at `sample_rate_hz`, empty without sound.
    `events` are all spans on the way to this chunk. `received_ns` is the client's CLOCK_MONOTONIC.
    """

    turn_id: str
    piece: int
    chunk: int
    last_chunk: bool
    last_piece: bool
    text: str
    heard: str
    status: str
    events: tuple[Event, ...]
    speech: Floats
    sample_rate_hz: int
    received_ns: int

    @property
    def ends_turn(self) -> bool:
        """Whether nothing may follow."""
        return self.last_chunk and self.last_piece


@dataclass(frozen=True)
class Transcript:
    """What `transcribe` understood."""

    text: str
    status: str
    events: tuple[Event, ...]


class TurnReader:
    """The messages of one turn's stream, in: chunks out, each checked for its place.

    Pieces count from 0, chunks from 0 within each piece; the last chunk of the last piece comes
    before the one end marker. An error is final. Whatever breaks this is a StageFailed.
    """

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self.finals = 0
        self._due = (0, 0)
        self._complete = False

    def take(self, message: Any, received_ns: int) -> TurnChunk | None:
        """The chunk in a ModelStreamInferResponse, None when it is only the end marker.

        Raises the StageError that the message carries.
        """
        if message.error_message:
            self.finals += 1
            raise from_text(message.error_message).at("", self.turn_id)
        response = message.infer_response
        self._check_alive(response)
        chunk = self._chunk(response, received_ns) if response.outputs else None
        self.finals += response.parameters["triton_final_response"].bool_param
        return chunk

    def close(self) -> None:
        """The stream has ended; StageFailed unless it ended as it should."""
        if not self.finals:
            raise self._broken("the stream ended without an end marker")
        if not self._complete:
            raise self._broken("the turn ended before its last chunk")

    def _check_alive(self, response: Any) -> None:
        if self.finals:
            raise self._broken("a message came after the end marker")
        if response.id != self.turn_id:
            raise self._broken(f"a message for turn {response.id!r} came to this one")

    def _chunk(self, response: Any, received_ns: int) -> TurnChunk:
        chunk = _read_chunk(self.turn_id, response, received_ns)
        if self._complete or (chunk.piece, chunk.chunk) != self._due:
            due = "nothing" if self._complete else f"{self._due}"
            raise self._broken(f"chunk {(chunk.piece, chunk.chunk)} came where {due} was due")
        self._complete = chunk.ends_turn
        self._due = (chunk.piece + 1, 0) if chunk.last_chunk else (chunk.piece, chunk.chunk + 1)
        return chunk

    def _broken(self, what: str) -> StageFailed:
        return StageFailed(what, stage="client", turn=self.turn_id)


def read_transcript(response: Any) -> Transcript:
    """The answer of `transcribe`; StageFailed when it is malformed."""
    with _understood():
        tensors = wire.to_arrays(response)
        return Transcript(_text(tensors, "HEARD"), _text(tensors, "STATUS"), events_of(tensors))


def _read_chunk(turn_id: str, response: Any, received_ns: int) -> TurnChunk:
    with _understood():
        tensors = wire.to_arrays(response)
        piece, chunk, flags = (int(value) for value in tensors["PIECE"].reshape(-1))
        silent = bool(flags & NO_SOUND)
        return TurnChunk(
            turn_id=turn_id,
            piece=piece,
            chunk=chunk,
            last_chunk=bool(flags & LAST_CHUNK),
            last_piece=bool(flags & LAST_PIECE),
            text="" if chunk else _text(tensors, "TEXT"),
            heard="" if piece or chunk else _text(tensors, "HEARD"),
            status=_text(tensors, "STATUS"),
            events=events_of(tensors),
            speech=np.zeros(0, np.float32) if silent else tensors["SPEECH"].reshape(-1),
            sample_rate_hz=SAMPLE_RATE_HZ if silent else int(tensors["SAMPLE_RATE"].item()),
            received_ns=received_ns,
        )


@contextmanager
def _understood() -> Iterator[None]:
    """A missing tensor, wrong sizes or broken JSON inside become a StageFailed."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as fault:
        raise StageFailed(f"malformed response: {fault!r}", stage="client") from fault


def _text(tensors: Tensors, name: str) -> str:
    tensor = tensors.get(name)
    if tensor is None or not tensor.size:
        return ""
    return bytes(tensor.reshape(-1)[0]).decode(errors="replace")


def events_of(tensors: Tensors) -> tuple[Event, ...]:
    """The spans in EVENTS, none where it is missing; KeyError, TypeError or ValueError when one is
    malformed."""
    rows = tensors.get("EVENTS", np.zeros(0, np.object_)).reshape(-1)
    return tuple(_event(json.loads(row)) for row in rows if row)


def _event(entry: Mapping[str, Any]) -> Event:
    known = {name: entry[name] for name in _EVENT_KEYS}
    return Event(**known, more={key: entry[key] for key in entry.keys() - _EVENT_KEYS})


_EVENT_KEYS = {each.name for each in fields(Event)} - {"more"}
