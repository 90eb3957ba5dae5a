"""How the callers of a run fared: what was answered and how fast, beside what was not and why."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rich.console import Group
from rich.table import Table

from loadtest.load.folder import RUN
from loadtest.load.punctuality import SHARES, percentile
from loadtest.load.records import FAILURES, OK, OPEN, Turn, read_turns

Percentiles = Mapping[float, float]


@dataclass(frozen=True)
class Summary:
    """Turns that were meant to start in the measured time; percentiles are of answered ones only.

    `per_s` counts answers that were complete within the measured time, whenever they were asked
    for. Times are in s, from the intended start. A failure is never a latency: fast refusals make
    nothing look better. `rtf` is time for the answer by seconds of sound in it. `times_s` is what
    is measured beside turns in live calls.
    """

    name: str
    emulated: bool
    counted: int
    answered: int
    per_s: float
    total_s: Percentiles
    first_audio_s: Percentiles
    rtf: Percentiles
    failures: Mapping[str, int]
    open_at_end: int
    invalid: str
    times_s: Mapping[str, Percentiles] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Of a finished run."""
        facts = json.loads((folder / RUN).read_text())
        return cls.of(facts, list(read_turns(folder)))

    @classmethod
    def of(cls, facts: Mapping[str, Any], turns: Sequence[Turn]) -> Self:
        """From run.json and turns.jsonl."""
        counted = [turn for turn in turns if turn.counted]
        answered = [turn for turn in counted if turn.outcome == OK]
        failed = (turn for turn in counted if turn.outcome in FAILURES)
        generator = facts["generator"]
        return cls(
            name=facts["name"],
            emulated=facts["emulated"],
            counted=len(counted),
            answered=len(answered),
            per_s=_per_s(facts, turns),
            total_s=_percentiles([turn.latency_ns / 1e9 for turn in answered]),
            first_audio_s=_percentiles([ns / 1e9 for t in answered if (ns := t.first_audio_ns)]),
            rtf=_percentiles([_rtf(turn) for turn in answered if sum(turn.chunk_audio_ms)]),
            failures=Counter(f"{turn.outcome}: {turn.reason}" for turn in failed),
            open_at_end=sum(turn.outcome == OPEN for turn in turns),
            invalid="" if generator["valid"] else generator["why"],
            times_s={
                name: {share: told[f"p{100 * share:g}"] / 1e3 for share in SHARES}
                for name, told in facts.get("times_ms", {}).items()
            },
        )

    def shown(self) -> Group:
        """For people."""
        device = ", emulated device" if self.emulated else ""
        table = Table("answered turns only", *(f"p{share * 100:g}" for share in SHARES))
        rows = {"first audio, s": self.first_audio_s, "whole answer, s": self.total_s}
        beside = {f"{name}, s": values for name, values in self.times_s.items()}
        for name, values in (rows | {"RTF": self.rtf} | beside).items():
            table.add_row(name, *(f"{values[s]:.3f}" if s in values else "-" for s in SHARES))
        head = f"{self.name}{device}: {self.per_s:.2f} answers/s"
        return Group(*self._warning(), head, table, *self._counts())

    def _warning(self) -> list[str]:
        return [f"INVALID, do not use: {self.invalid}"] if self.invalid else []

    def _counts(self) -> Iterator[str]:
        yield f"{self.answered} of {self.counted} turns answered"
        yield from (f"{count} failed, {why}" for why, count in self.failures.items())
        yield f"{self.open_at_end} cancelled at the end of the run, counted nowhere else"


def _per_s(facts: Mapping[str, Any], turns: Sequence[Turn]) -> float:
    from_ns, to_ns = int(facts["measured_from_ns"]), int(facts["measured_to_ns"])
    ended = sum(turn.outcome == OK and from_ns <= turn.end_ns < to_ns for turn in turns)
    return ended / (to_ns - from_ns) * 1e9


def _rtf(turn: Turn) -> float:
    return turn.latency_ns / 1e6 / sum(turn.chunk_audio_ms)


def _percentiles(values: Sequence[float]) -> Percentiles:
    return {share: percentile(values, share) for share in SHARES} if values else {}
