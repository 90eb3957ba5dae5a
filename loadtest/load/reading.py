"""One turn's stream, read with as little work as a load generator can afford.

`client.responses.TurnReader` decodes every tensor of every chunk; here PIECE and the amount of
sound are looked at on arrival, and EVENTS only once, in the last response. The grammar is the
same: pieces and chunks in order, the last chunk, one end marker.
"""

import json
import struct
from typing import Any

from python_backends.errors import StageFailed, from_text
from python_backends.pieces import LAST_CHUNK, LAST_PIECE, NO_SOUND
from python_backends.wire import is_final

LENGTH_BYTES = 4
"""Of the little-endian length before each element of a BYTES tensor."""


class Reading:
    """What has come of one turn so far: when each chunk came, and ms of sound in it."""

    def __init__(self, turn: str, *, emulated: bool) -> None:
        self.turn = turn
        self.chunks_ns: list[int] = []
        self.chunk_audio_ms: list[float] = []
        self._emulated = emulated
        self._due = (0, 0)
        self._complete = False
        self._final = False
        self._events: dict[int, bytes] = {}
        """Piece -> EVENTS of its newest response."""

    def take(self, message: Any, received_ns: int) -> None:
        """One ModelStreamInferResponse; raises the StageError in it, StageFailed for nonsense."""
        if message.error_message:
            raise from_text(message.error_message).at("", self.turn)
        response = message.infer_response
        if self._final or response.id != self.turn:
            raise self._broken("a message came that is not this turn's")
        if response.outputs:
            names = (output.name for output in response.outputs)
            tensors = dict(zip(names, response.raw_output_contents, strict=True))
            self._take_chunk(tensors, received_ns)
        self._final = is_final(response)

    def close(self) -> None:
        """The stream has ended; StageFailed unless it ended as it should."""
        if not (self._final and self._complete):
            raise self._broken("the stream ended before the turn did")

    def events(self) -> list[Any]:
        """Every different entry of EVENTS of the last response of each piece, which has all that
        the piece went through; StageFailed when they are not JSON."""
        try:
            told = self._events.values()
            rows = dict.fromkeys(row for events in told for row in _rows(events) if row)
            return [json.loads(row) for row in rows]
        except ValueError as fault:
            raise self._broken("EVENTS are not JSON") from fault

    def _take_chunk(self, tensors: dict[str, bytes], received_ns: int) -> None:
        try:
            piece, chunk, flags = struct.unpack("<3i", tensors["PIECE"])
            audio_ms = 0.0 if flags & NO_SOUND else self._audio_ms(tensors)
        except (KeyError, struct.error, ZeroDivisionError) as fault:
            raise self._broken("a malformed chunk came") from fault
        if self._complete or (piece, chunk) != self._due:
            raise self._broken(f"chunk {(piece, chunk)} came where {self._due} was due")
        self.chunks_ns.append(received_ns)
        self.chunk_audio_ms.append(audio_ms)
        self._events[piece] = tensors.get("EVENTS", b"")
        self._complete = bool(flags & LAST_CHUNK and flags & LAST_PIECE)
        self._due = (piece + 1, 0) if flags & LAST_CHUNK else (piece, chunk + 1)

    def _audio_ms(self, tensors: dict[str, bytes]) -> float:
        if self._emulated:
            return float(struct.unpack("<f", tensors["SPEECH"])[0])
        (rate_hz,) = struct.unpack("<i", tensors["SAMPLE_RATE"])
        return len(tensors["SPEECH"]) / 4 / float(rate_hz) * 1e3

    def _broken(self, what: str) -> StageFailed:
        return StageFailed(what, stage="client", turn=self.turn)


def _rows(raw: bytes) -> list[bytes]:
    """The elements of a BYTES tensor."""
    rows, at = [], 0
    while at < len(raw):
        end = at + LENGTH_BYTES + int.from_bytes(raw[at : at + LENGTH_BYTES], "little")
        rows.append(raw[at + LENGTH_BYTES : end])
        at = end
    return rows
