"""One turn as it arrived, and the times that follow from it."""

from collections.abc import Iterable

import numpy as np

from client import traceparent as w3c
from client.responses import Event, Floats, TurnChunk
from python_backends.ordering.exchange import join_pieces
from python_backends.speech import SAMPLE_RATE_HZ

PATH = ("encode", "asr_decode", "think", "prosody", "acoustic")
"""Stages that leave spans, in the order a turn passes them."""
TRANSPORT_IN = "transport in"
VOCODER = "vocoder + transport"
REMOTE = "remote"
"""A span that wraps those of a stage on another server, and the ways there and back."""

NS = 1e-9


class TurnRecord:
    """The chunks of one turn; `sent_ns` is on the clock of their `received_ns`."""

    def __init__(self, turn_id: str, sent_ns: int, traceparent: str = "") -> None:
        self.turn_id = turn_id
        self.sent_ns = sent_ns
        self.traceparent = traceparent
        self.chunks: list[TurnChunk] = []

    def add(self, chunk: TurnChunk) -> None:
        """Take the next chunk."""
        self.chunks.append(chunk)

    @property
    def trace_id(self) -> str:
        """Of the trace that the turn belongs to, 32 hex digits."""
        return w3c.trace_id(self.traceparent)

    @property
    def heard(self) -> str:
        """What was understood of the user."""
        return next((chunk.heard.strip() for chunk in self.chunks if chunk.heard.strip()), "")

    @property
    def reply(self) -> str:
        """The text of the answer."""
        return join_pieces(chunk.text for chunk in self.chunks)

    @property
    def status(self) -> str:
        """The finish reason."""
        return self.chunks[-1].status if self.chunks else ""

    @property
    def speech(self) -> Floats:
        """The sound of the answer, float32 [samples] at `sample_rate_hz`."""
        return np.concatenate([np.zeros(0, np.float32), *(chunk.speech for chunk in self.chunks)])

    @property
    def sample_rate_hz(self) -> int:
        """Of `speech`."""
        return next((c.sample_rate_hz for c in self.chunks if c.speech.size), SAMPLE_RATE_HZ)

    @property
    def speech_s(self) -> float:
        """Seconds of sound that were really returned."""
        return sum(chunk.speech.size / chunk.sample_rate_hz for chunk in self.chunks)

    @property
    def first_sound(self) -> TurnChunk | None:
        """The first chunk with sound."""
        return next((chunk for chunk in self.chunks if chunk.speech.size), None)

    @property
    def first_audio_s(self) -> float | None:
        """From sending the request to the first chunk with sound."""
        return (self.first_sound.received_ns - self.sent_ns) * NS if self.first_sound else None

    @property
    def total_s(self) -> float:
        """From sending the request to the last chunk."""
        return (self.chunks[-1].received_ns - self.sent_ns) * NS if self.chunks else 0.0

    @property
    def rtf(self) -> float | None:
        """Real-time factor: `total_s` by seconds of returned sound."""
        return self.total_s / self.speech_s if self.speech_s else None

    @property
    def events(self) -> list[Event]:
        """All spans, each once, by start."""
        distinct = {event for chunk in self.chunks for event in chunk.events}
        return sorted(distinct, key=lambda event: (event.start_ns, event.end_ns, event.stage))

    @property
    def work(self) -> list[Event]:
        """The spans that say what a stage did; those that wrap them are left out."""
        return [event for event in self.events if event.what != REMOTE]

    @property
    def same_clock(self) -> bool:
        """Whether the server's spans fit between sending and receiving: one machine, one clock."""
        events = self.events
        if not events:
            return False
        last_ns = max(event.end_ns for event in events)
        return self.sent_ns <= events[0].start_ns and last_ns <= self.chunks[-1].received_ns

    def stages(self) -> dict[str, float]:
        """Stage -> seconds in which it worked on this turn or kept it waiting."""
        work = self.work
        names = dict.fromkeys(event.stage for event in work)
        return {name: covered_s(e for e in work if e.stage == name) for name in names}

    def first_audio_parts(self) -> dict[str, float]:
        """`first_audio_s` by what it was spent on, waiting included; empty across two machines."""
        chunk = self.first_sound
        if chunk is None or not self.same_clock:
            return {}
        path = [event for event in chunk.events if event.stage in PATH and event.what != REMOTE]
        marks = {TRANSPORT_IN: min((event.start_ns for event in path), default=self.sent_ns)}
        for stage in PATH:
            ends = [event.end_ns for event in path if event.stage == stage]
            marks |= {stage: max(ends)} if ends else {}
        return _between(self.sent_ns, marks | {VOCODER: chunk.received_ns})


def covered_s(events: Iterable[Event]) -> float:
    """Seconds that at least one of the spans covers."""
    covered_ns, until_ns = 0, 0
    for event in sorted(events, key=lambda event: event.start_ns):
        covered_ns += max(0, event.end_ns - max(event.start_ns, until_ns))
        until_ns = max(until_ns, event.end_ns)
    return covered_ns * NS


def _between(start_ns: int, marks: dict[str, int]) -> dict[str, float]:
    """Seconds from each mark to the next; one that lies before its forerunner takes none."""
    parts: dict[str, float] = {}
    for name, mark_ns in marks.items():
        parts[name] = max(0, mark_ns - start_ns) * NS
        start_ns = max(start_ns, mark_ns)
    return parts
