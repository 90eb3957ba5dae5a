"""What is told of a turn that a front door ended. Knows nothing of OpenTelemetry."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

EXPORTED: Final = "exported"
"""Set in a span of a door that sends its turns' spans to a collector: nobody else need to."""

UNSAMPLED: Final = "00"
KNOWN: Final = ("stage", "turn", "piece", "what", "start_ns", "end_ns")
MOST_NS: Final = 1 << 62
"""No clock is so far: OTLP has 64 bits for unix time."""


@dataclass(frozen=True)
class DoorTurn:
    """Times are CLOCK_MONOTONIC of this machine, which is that of `events`, entries of EVENTS."""

    turn: str
    traceparent: str
    """Of its caller; empty: the door begins the trace."""

    arrived_ns: int
    end_ns: int
    first_ns: int | None
    """When the first response left."""

    failure: str
    """The code of its error; empty where it was answered."""

    events: tuple[bytes, ...]

    @property
    def is_wanted(self) -> bool:
        """Its caller does not say that nobody looks at the trace."""
        return not self.traceparent.endswith("-" + UNSAMPLED)


@dataclass(frozen=True)
class Entry:
    """See StageSpan."""

    stage: str
    what: str
    piece: int
    start_ns: int
    end_ns: int
    more: Mapping[str, Any] = field(default_factory=dict)


def entries(events: Iterable[bytes]) -> list[Entry]:
    """Those that are spans."""
    found = []
    for raw in events:
        try:
            told = json.loads(raw)
            more = {key: value for key, value in told.items() if key not in KNOWN}
            piece, start_ns, end_ns = (int(told[key]) for key in ("piece", "start_ns", "end_ns"))
            if not all(0 <= at < MOST_NS for at in (start_ns, end_ns)):
                continue
            found.append(
                Entry(str(told["stage"]), str(told["what"]), piece, start_ns, end_ns, more)
            )
        except (
            ArithmeticError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ):
            continue
    return found
