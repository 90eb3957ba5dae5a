"""turns.jsonl: one line a turn, written as turns end."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from python_backends.errors import Cancelled, DeadlineMissed, Overloaded, StageError

TURNS = "turns.jsonl"
OK, TIMEOUT, REFUSED, ERROR, OPEN = "ok", "timeout", "refused", "error", "open"
"""Outcomes. `open`: still unanswered when the run ended, neither a success nor a failure."""

FAILURES = (TIMEOUT, REFUSED, ERROR)


@dataclass
class Turn:
    """One turn as its caller saw it; all times CLOCK_MONOTONIC in ns.

    `intended_ns` is when it was meant to start, `sent_ns` when the request left; a caller waits
    from the former. `reason` is the error's code and where it arose, `detail` its sentence.
    `counted`: it was meant to start while the run was measured. `chunk_audio_ms` is 0.0 for a
    chunk without sound. `events` are the EVENTS of its last response.
    """

    turn: str
    user: int
    intended_ns: int
    sent_ns: int
    counted: bool
    outcome: str = ERROR
    reason: str = "INTERNAL at client"
    detail: str = ""
    chunks_ns: list[int] = field(default_factory=list)
    chunk_audio_ms: list[float] = field(default_factory=list)
    end_ns: int = 0
    events: list[Any] = field(default_factory=list)

    @property
    def latency_ns(self) -> int:
        """From the intended start to the end of the answer."""
        return self.end_ns - self.intended_ns

    @property
    def first_audio_ns(self) -> int | None:
        """From the intended start to the first chunk with sound, None where there was none."""
        for at_ns, audio_ms in zip(self.chunks_ns, self.chunk_audio_ms, strict=True):
            if audio_ms > 0:
                return at_ns - self.intended_ns
        return None

    def succeed(self) -> None:
        """It was answered completely."""
        self.outcome, self.reason = OK, ""

    def fail(self, error: StageError, *, late: bool) -> None:
        """It was not; `late`: the caller's time had run out when the error came."""
        self.outcome = outcome_of(error, late=late)
        self.reason = f"{error.code} at {error.stage or 'server'}"
        self.detail = error.message

    def leave_open(self) -> None:
        """The run ended first."""
        self.outcome, self.reason = OPEN, ""


def outcome_of(error: StageError, *, late: bool) -> str:
    """A time-out is the caller's own; a server that cannot be in time, or has no room, refuses."""
    match error:
        case DeadlineMissed() if error.stage == "client":
            return TIMEOUT
        case Cancelled() if late:
            return TIMEOUT
        case Overloaded() | DeadlineMissed():
            return REFUSED
    return ERROR


class TurnWriter:
    """Appends turns to a run's turns.jsonl."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / TURNS).open("w")

    def write(self, turn: Turn) -> None:
        """One line; it reaches the disk with `flush`."""
        self._file.write(json.dumps(vars(turn), separators=(",", ":")) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_turns(folder: Path) -> Iterator[Turn]:
    """The turns of a run, in the order they ended."""
    with (folder / TURNS).open() as file:
        for line in file:
            yield Turn(**json.loads(line))
