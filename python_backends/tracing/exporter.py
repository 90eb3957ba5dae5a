"""Sends the turns of a front door to a collector, on a thread of its own."""

import logging
import queue
import threading
from collections.abc import Sequence
from typing import Final, Protocol

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from python_backends.bridge.meters import Meters
from python_backends.tracing.door_turn import DoorTurn
from python_backends.tracing.spans import unix_offset_ns
from python_backends.tracing.turns import to_spans

WAITING: Final = 512
"""Turns that may wait for the collector; those beyond are dropped."""

BATCH: Final = 64
TIMEOUT_S: Final = 10.0
"""For one batch, its retries included: OpenTelemetry's own exporter asks again, at longer and
longer intervals, where the collector says that it may."""

LAST_WORDS_S: Final = 3.0
LOGGER: Final = "opentelemetry.exporter"


class Sends(Protocol):
    """What OpenTelemetry's exporters do."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult: ...
    def shutdown(self) -> None: ...


class Exporter:
    """Never blocks whoever offers a turn, and counts what it sent and what it had to drop in
    `spans_total`. From its making to `close`."""

    def __init__(self, endpoint: str, meters: Meters, sends: Sends | None = None) -> None:
        self._meters = meters
        self._sends: Sends = sends or OTLPSpanExporter(endpoint=endpoint, timeout=TIMEOUT_S)
        _silence(logging.getLogger(LOGGER))
        self._waiting: queue.Queue[DoorTurn | None] = queue.Queue(WAITING)
        for result in ("sent", "dropped"):
            meters.begin("spans_total", result=result)
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def offer(self, turn: DoorTurn) -> None:
        """Have a turn sent, if there is room; for any thread."""
        if not turn.is_wanted:
            return
        try:
            self._waiting.put_nowait(turn)
        except queue.Full:
            self._count(1 + len(turn.events), "dropped")

    def close(self) -> None:
        """Send what waits, for as long as LAST_WORDS_S, and end."""
        try:
            self._waiting.put(None, timeout=LAST_WORDS_S)
            self._thread.join(LAST_WORDS_S)
        except queue.Full:
            pass
        self._sends.shutdown()

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            batch, ends = self._gathered(first)
            offset_ns = unix_offset_ns()
            spans = [span for turn in batch for span in self._spans(turn, offset_ns)]
            self._count(len(spans), "sent" if self._was_taken(spans) else "dropped")
            if ends:
                return

    def _gathered(self, first: DoorTurn) -> tuple[list[DoorTurn], bool]:
        """What waits with it, and whether that was all there will be."""
        batch = [first]
        while len(batch) < BATCH:
            try:
                turn = self._waiting.get_nowait()
            except queue.Empty:
                break
            if turn is None:
                return batch, True
            batch.append(turn)
        return batch, False

    def _spans(self, turn: DoorTurn, offset_ns: int) -> list[ReadableSpan]:
        """None of a turn that cannot be told: it must not end the thread."""
        try:
            return to_spans(turn, offset_ns)
        except Exception:
            self._count(1 + len(turn.events), "dropped")
            return []

    def _was_taken(self, spans: Sequence[ReadableSpan]) -> bool:
        try:
            return self._sends.export(spans) is SpanExportResult.SUCCESS
        except Exception:  # a library's fault must not end the thread: these spans are lost
            return False

    def _count(self, spans: int, result: str) -> None:
        self._meters.count("spans_total", spans, result=result)


def _silence(logger: logging.Logger) -> None:
    """What fails is counted; to tell of it once a batch would fill a log."""
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
