"""Another host's clock against ours: spans of one trace have to lie on one time line."""

import json
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLES = 16
"""Questions remembered; the quickest of them is believed."""


@dataclass(frozen=True)
class _Sample:
    trip_ns: int
    offset_ns: int


class HostClock:
    """How far a replica's CLOCK_MONOTONIC is ahead of ours.

    As in NTP (RFC 5905, section 8): the other clock is taken to have been read half-way between
    question and answer, so the error is at most half the round trip; of the last few questions the
    one with the shortest round trip counts. A replica on this host has our own clock, exactly.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES)
        self._other: object = None

    def heard(self, sent_ns: int, received_ns: int, told: NDArray[np.object_] | None) -> None:
        """An answer to {"clock": true}, EVENTS [1, 1]; one that cannot be read is ignored."""
        rows = [] if told is None else [_entry(row) for row in told.reshape(-1)]
        for entry in rows:
            if entry.get("what") == "clock" and isinstance(entry.get("start_ns"), int):
                ahead_ns = entry["start_ns"] - (sent_ns + received_ns) // 2
                if entry.get("host") != self._other:  # another machine by now, or another boot
                    self._samples.clear()
                    self._other = entry.get("host")
                same = self._other == self._host
                self._samples.append(_Sample(received_ns - sent_ns, 0 if same else ahead_ns))

    @property
    def offset_ns(self) -> int:
        """Theirs minus ours; 0 before the first answer."""
        best = min(self._samples, key=lambda one: one.trip_ns, default=None)
        return 0 if best is None else best.offset_ns

    def ours(
        self, events: NDArray[np.object_], given: NDArray[np.object_] | None
    ) -> NDArray[np.object_]:
        """EVENTS [1, n] that came back, on our clock; what was `given` to it is there already."""
        offset_ns = self.offset_ns
        if not offset_ns:
            return events
        before = set() if given is None else set(given.reshape(-1))
        rows = [row if row in before else _shifted(row, offset_ns) for row in events.reshape(-1)]
        return np.array([rows], dtype=np.object_)


def _shifted(row: bytes, offset_ns: int) -> bytes:
    entry = _entry(row)
    if not {"start_ns", "end_ns"} <= entry.keys():
        return row
    moved = {key: entry[key] - offset_ns for key in ("start_ns", "end_ns")}
    return json.dumps({**entry, **moved}, separators=(",", ":")).encode()


def _entry(row: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(row)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}
