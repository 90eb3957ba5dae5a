"""Telling a collector of turns, without knowing how."""

from typing import Final, Protocol

from python_backends.tracing.door_turn import DoorTurn

ENDPOINT: Final = "TRISTAGE_OTLP_ENDPOINT"
"""The environment variable that names a collector, as in http://127.0.0.1:4318/v1/traces."""


class Traces(Protocol):
    """See tracing.exporter.Exporter."""

    def offer(self, turn: DoorTurn) -> None: ...
    def close(self) -> None: ...
