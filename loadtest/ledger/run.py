"""A run folder: what the load test wrote down, read back."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

NS_PER_MS = 1_000_000
OPEN = "open"
"""Outcome of a turn that the end of the run cut short."""


@dataclass(frozen=True, slots=True)
class Span:
    """One entry of a turn's EVENTS: what a stage did with it, or kept it waiting for."""

    stage: str
    what: str
    start_ns: int
    end_ns: int
    piece: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, entry: dict[str, Any]) -> "Span":
        """From one JSON object of EVENTS; its turn is known from where it was found."""
        more = {k: v for k, v in entry.items() if k not in _SPAN_KEYS}
        return cls(
            plain(entry["stage"]),
            entry["what"],
            entry["start_ns"],
            entry["end_ns"],
            entry.get("piece", 0),
            more,
        )


_SPAN_KEYS = ("stage", "turn", "what", "start_ns", "end_ns", "piece")


@dataclass(frozen=True, slots=True)
class Pass:
    """One uninterrupted task of a device; `submitted_ns` is when its process asked for it."""

    device: str
    stage: str
    members: int
    submitted_ns: int
    start_ns: int
    end_ns: int

    @property
    def middle_ns(self) -> int:
        """Half way through."""
        return (self.start_ns + self.end_ns) // 2


@dataclass(frozen=True)
class Turn:
    """One turn as its client saw it; chunks are the responses, `chunk_audio_ms` their sound."""

    turn: str
    user: str
    intended_ns: int
    sent_ns: int
    outcome: str
    reason: str
    chunks_ns: tuple[int, ...]
    chunk_audio_ms: tuple[float, ...]
    end_ns: int
    spans: tuple[Span, ...]
    traceparent: str = ""
    """W3C trace context that it was sent with, if any."""

    @classmethod
    def parse(cls, entry: dict[str, Any]) -> "Turn":
        """From one line of turns.jsonl."""
        return cls(
            turn=entry["turn"],
            user=str(entry["user"]),
            intended_ns=entry["intended_ns"],
            sent_ns=entry["sent_ns"],
            outcome=entry["outcome"],
            reason=entry["reason"],
            chunks_ns=tuple(entry["chunks_ns"]),
            chunk_audio_ms=tuple(entry["chunk_audio_ms"]),
            end_ns=entry["end_ns"],
            spans=tuple(Span.parse(event) for event in entry["events"]),
            traceparent=entry.get("traceparent", ""),
        )

    @property
    def is_ok(self) -> bool:
        """The whole answer arrived in time."""
        return self.outcome == "ok"

    @property
    def failure(self) -> str:
        """Outcome and reason, for counting."""
        return f"{self.outcome}: {self.reason}" if self.reason else self.outcome

    @property
    def sound(self) -> list[tuple[int, float]]:
        """(arrival ns, audio ms) of the chunks that carry sound."""
        pairs = zip(self.chunks_ns, self.chunk_audio_ms, strict=True)
        return [(at, audio) for at, audio in pairs if audio > 0]


@dataclass(frozen=True)
class Run:
    """Everything that one run left behind; all times CLOCK_MONOTONIC ns of one machine."""

    folder: Path
    facts: Mapping[str, Any]
    turns: tuple[Turn, ...]
    passes: tuple[Pass, ...]
    host: tuple[Span, ...]
    """Spans that the stages' own processes wrote, of no turn in particular."""

    @classmethod
    def read(cls, folder: Path) -> "Run":
        """Raises FileNotFoundError without run.json or turns.jsonl, KeyError for a missing key."""
        facts = json.loads((folder / "run.json").read_text())
        turns = (Turn.parse(line) for line in _lines(folder / "turns.jsonl"))
        passes = [Pass(**_kept(line)) for line in _lines(folder / "device.jsonl", missing_ok=True)]
        host = [Span.parse(one) for path in _span_files(folder) for one in _lines(path)]
        return cls(
            folder=folder,
            facts=facts,
            turns=tuple(_ended(turn, facts) for turn in turns),
            passes=tuple(sorted(passes, key=lambda one: (one.start_ns, one.end_ns))),
            host=tuple(sorted(host, key=lambda one: (one.start_ns, one.end_ns))),
        )

    @property
    def name(self) -> str:
        """Its own name."""
        return str(self.facts["name"])

    @property
    def series(self) -> str:
        """What it is compared as: the target, or a finer name where the bench gave one."""
        return str(self.facts.get("series") or self.facts["target"])

    @property
    def people(self) -> int:
        """Spoken-turn users at once; in an open loop only the most there could be."""
        return int(self.facts["people"])

    @property
    def is_open_loop(self) -> bool:
        """Turns are sent at their own times, whether or not earlier ones were answered."""
        return bool(self.facts["mode"] == "open")

    @property
    def emulated(self) -> bool:
        """The device only pretends to compute."""
        return bool(self.facts["emulated"])

    @property
    def device_words(self) -> str:
        """How the device is called in everything that is printed."""
        return "emulated device" if self.emulated else "device"

    @property
    def invalid(self) -> str:
        """Why the generator's figures cannot be trusted; empty when they can."""
        generator = self.facts.get("generator") or {}
        if generator.get("valid", True):
            return ""
        return str(generator.get("why") or "the load generator was late")

    @property
    def window(self) -> tuple[int, int]:
        """What is measured, warm-up excluded."""
        return int(self.facts["measured_from_ns"]), int(self.facts["measured_to_ns"])

    @property
    def ended_ns(self) -> int:
        """When the last turn was over or given up."""
        return int(self.facts.get("ended_ns", self.facts["measured_to_ns"]))

    @property
    def wall_ns(self) -> int:
        """Length of the window."""
        return self.window[1] - self.window[0]

    @cached_property
    def measured(self) -> tuple[Turn, ...]:
        """Turns of the window: those that ended in it; in an open loop, those intended in it.

        Turns still open when the run ended are neither successes nor failures.
        """
        start, end = self.window
        over = (turn for turn in self.turns if turn.outcome != OPEN)
        moments = ((turn, self._counted_ns(turn)) for turn in over)
        return tuple(turn for turn, at_ns in moments if start <= at_ns < end)

    def _counted_ns(self, turn: Turn) -> int:
        return turn.intended_ns if self.is_open_loop else turn.end_ns

    @cached_property
    def answered(self) -> tuple[Turn, ...]:
        """The measured turns that succeeded."""
        return tuple(turn for turn in self.measured if turn.is_ok)


def plain(model: str) -> str:
    """The stage that a model is: emu_think and emu_think_pieces stand for "think"."""
    return model.split("_")[1] if model.startswith("emu_") else model


def _ended(turn: Turn, facts: Mapping[str, Any]) -> Turn:
    """A turn that the run's end cut short lasts until then."""
    if turn.end_ns >= turn.sent_ns:
        return turn
    until_ns = int(facts.get("ended_ns", facts["measured_to_ns"]))
    return replace(turn, end_ns=max(turn.sent_ns, until_ns))


def _kept(line: dict[str, Any]) -> dict[str, Any]:
    fields = {key: line[key] for key in Pass.__slots__}
    return {**fields, "device": device_name(fields["device"]), "stage": plain(fields["stage"])}


def device_name(file: str) -> str:
    """A device's name from its file's, without what makes files of many benches differ."""
    name = Path(file).stem
    return name.rsplit("-", 1)[-1] if name.startswith("tristage-") else name


def _span_files(folder: Path) -> list[Path]:
    return sorted((folder / "spans").glob("*.jsonl"))


def _lines(path: Path, *, missing_ok: bool = False) -> Iterator[dict[str, Any]]:
    if missing_ok and not path.exists():
        return
    with path.open() as file:
        for line in file:
            if line.endswith("\n"):  # a killed process leaves half a line
                yield json.loads(line)
