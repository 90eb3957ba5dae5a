"""The figures of a stage on Triton's /metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import triton_python_backend_utils as pb_utils

from python_backends.bridge.meters import Labels, Name

STEP_S = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
GAP_S = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
WAIT_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
ANSWER_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True)
class Figure:
    """One family: `tristage_<name>{stage=...}`."""

    kind: Literal["COUNTER", "GAUGE", "HISTOGRAM"]
    description: str
    buckets: tuple[float, ...] = ()


FIGURES: Mapping[Name, Figure] = {
    "queue_seconds": Figure(
        "HISTOGRAM", "Seconds from a request's arrival to the first computing for it", WAIT_S
    ),
    "window_seconds": Figure(
        "HISTOGRAM", "Seconds from a window's features being ready to the pass that took it", WAIT_S
    ),
    "lock_seconds": Figure(
        "HISTOGRAM", "Seconds from a piece being queued to its first step", WAIT_S
    ),
    "step_seconds": Figure(
        "HISTOGRAM",
        "Seconds of one decoding step, encoder pass, locked batch or flow step",
        STEP_S,
    ),
    "gap_seconds": Figure(
        "HISTOGRAM", "Seconds an engine stands still between two decoding steps", GAP_S
    ),
    "first_chunk_seconds": Figure(
        "HISTOGRAM", "Seconds from a request's arrival to its first response", ANSWER_S
    ),
    "chunk_seconds": Figure(
        "HISTOGRAM", "Seconds from a chunk of a caller's sound to its being listened to", WAIT_S
    ),
    "steps_total": Figure(
        "COUNTER", "Decoding steps, encoder passes, locked batches or flow steps ended"
    ),
    "heartbeats_total": Figure(
        "COUNTER",
        "Times that a process has published its figures; rows of one that beats no more are stale",
    ),
    "releases_total": Figure("COUNTER", "Encoder passes, by the reason why each one left"),
    "shared_total": Figure(
        "COUNTER", "Encoder windows that waited for the same sound instead of being encoded again"
    ),
    "requests_total": Figure("COUNTER", "Requests answered to the end, by ok or the error's code"),
    "slots": Figure(
        "GAUGE", "Members of the batch that run, that wait for a place, and places that are free"
    ),
    "bytes": Figure(
        "GAUGE",
        "Bytes of the KV and context pools; a wide context is addresses until it is used",
    ),
    "stage_bytes": Figure(
        "GAUGE",
        "Bytes that a stage declares, has taken, and had taken at most, by the part of its budget",
    ),
    "session_bytes": Figure("GAUGE", "Bytes of KV set aside for the next turns of sessions"),
    "open_requests": Figure(
        "GAUGE", "Requests accepted and not yet answered to the end; what stays is a leak"
    ),
    "dead_turns": Figure(
        "GAUGE", "Turns that were cancelled within the last minute, whose stragglers are refused"
    ),
    "stage_up": Figure("GAUGE", "Whether the process of a stage runs, as the front door sees it"),
    "restarts_total": Figure(
        "COUNTER", "Processes of a stage that have taken the place of one that had ended"
    ),
    "spans_total": Figure(
        "COUNTER", "Spans of turns for the collector, by whether they were sent or dropped"
    ),
    "server_started": Figure(
        "GAUGE",
        "When the server began, in s since its machine did; another value is another server",
    ),
    "remote_turns": Figure("GAUGE", "Turns that a proxy has at a replica and that are not over"),
}


class Figures:
    """A stage's rows, each of them there from its first value on.

    `started`, a time in s, tells the rows of this process from those of the one before. Two
    processes must never have a row in common: the server (2.51) frees a row that one of them gives
    up while the other still writes to it, and dies of it soon. It never frees those of a process
    that was killed, so that the newest `started` of a stage is the one to read.
    """

    def __init__(self, stage: str, version: str = "") -> None:
        self._labels = {"stage": stage, "started": f"{time.time():.3f}"}
        if version:
            self._labels["version"] = version
        self._families: dict[str, pb_utils.MetricFamily] = {}
        self._metrics: dict[tuple[str, Labels], pb_utils.Metric] = {}
        self._closed = False

    def tell(self, name: Name, labels: Labels, value: float) -> None:
        """Observe a duration, add to a counter, or set a gauge; ignored once closed.

        Some 0.04 ms, and as many milliseconds where all cores are busy, during which no other
        thread of this process runs: the stub waits for the server without letting them.
        """
        if self._closed:
            return
        metric = self._metrics.get((name, labels)) or self._new(name, labels)
        match FIGURES[name].kind:
            case "HISTOGRAM":
                metric.observe(value)
            case "COUNTER":
                metric.increment(value)
            case "GAUGE":
                metric.set(value)

    def close(self) -> None:
        """Give all up while the stub still serves, metrics first: its exit would crash."""
        self._closed = True
        self._metrics.clear()
        self._families.clear()

    def _new(self, name: Name, labels: Labels) -> pb_utils.Metric:
        figure = FIGURES[name]
        if name not in self._families:
            self._families[name] = pb_utils.MetricFamily(
                name=f"tristage_{name}",
                description=figure.description,
                kind=getattr(pb_utils.MetricFamily, figure.kind),
            )
        more: dict[str, Any] = {"buckets": list(figure.buckets)} if figure.buckets else {}
        metric = self._families[name].Metric(labels={**self._labels, **dict(labels)}, **more)
        self._metrics[name, labels] = metric
        return metric
