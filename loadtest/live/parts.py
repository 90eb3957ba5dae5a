"""What the time from the end of speech to the first sound of the answer goes to. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Final

from loadtest.ledger.intervals import intersection, total, union
from loadtest.live.record import NS_PER_MS, Record, Said, Turn
from loadtest.load.punctuality import percentile

QUEUES: Final = ("queue", "admission")
"""Spans in which a turn waits for a place."""


@dataclass(frozen=True)
class Parts:
    """In ms; disjoint, and all of it together."""

    endpoint: float
    """Until the server said that the speech is over: silence that it waits for, mostly."""

    words: float
    """From there to what was said; nothing where it was ready before."""

    queue: float
    """After that: waiting for a place at the door, or in a stage."""

    stages: float
    """The rest: thinking and speaking, and the ways between."""

    @property
    def first_sound(self) -> float:
        """All of it."""
        return self.endpoint + self.words + self.queue + self.stages


NAMES: Final = tuple(Parts.__dataclass_fields__)
SUM: Final = "first_sound"


def parts(said: Said, turn: Turn) -> Parts | None:
    """None where the turn has no answer that was heard."""
    if not (turn.ended_ns and turn.words_ns and turn.first_sound_ns):
        return None
    answering = (turn.words_ns, turn.first_sound_ns)
    waits = union((one.start_ns, one.end_ns) for one in turn.spans if one.what in QUEUES)
    queue_ns = total(intersection(waits, [answering]))
    return Parts(
        endpoint=(turn.ended_ns - said.end_ns) / NS_PER_MS,
        words=(turn.words_ns - turn.ended_ns) / NS_PER_MS,
        queue=queue_ns / NS_PER_MS,
        stages=(answering[1] - answering[0] - queue_ns) / NS_PER_MS,
    )


def parts_of(records: Iterable[Record]) -> list[Parts]:
    """Of all recordings that were answered."""
    found = (parts(*pair) for record in records for pair in record.pairs())
    return [one for one in found if one is not None]


def figures(prefix: str, records: Sequence[Record]) -> dict[str, float | None]:
    """By name; the time to the first sound, in its parts, is None where nobody was answered."""
    found = parts_of(records)
    times: dict[str, Sequence[float]] = {
        f"{name}_ms": [getattr(one, name) for one in found] for name in (SUM, *NAMES)
    }
    times["sent_late_ms"] = [late for record in records for late in record.late_ms]
    counts = {
        "failed_turns": sum(record.planned - record.answered for record in records),
        "false_ends": sum(record.false_ends for record in records),
        "underruns": sum(record.underruns for record in records),
    }
    return {f"{prefix}_{name}": value for name, value in (percentiles(times) | counts).items()}


def chunk_figures(prefix: str, rounds: Iterable[Sequence[Record]]) -> dict[str, float | None]:
    """What chunks took: the median of the rounds' p50, and of their p95. A round has thousands of
    them, and one in which the machine was away should not decide."""
    found = [chunk_percentiles(records) for records in rounds]
    told = {name: [value for one in found if (value := one[name]) is not None] for name in found[0]}
    return {f"{prefix}_{name}": median(values) if values else None for name, values in told.items()}


def chunk_percentiles(records: Iterable[Record]) -> dict[str, float | None]:
    """Of one round."""
    return percentiles({"chunk_ms": [lag for record in records for lag in record.lags_ms]})


def percentiles(times: Mapping[str, Sequence[float]]) -> dict[str, float | None]:
    """p50 and p95 of each; None where there are no values."""
    return {
        f"{name}_p{share}": round(percentile(values, share / 100), 2) if values else None
        for name, values in times.items()
        for share in (50, 95)
    }


def means(found: Sequence[Parts]) -> dict[str, float]:
    """Of every part, so that they add up; empty without any."""
    rows = [asdict(one) for one in found]
    return {name: fmean(row[name] for row in rows) for name in NAMES} if rows else {}
