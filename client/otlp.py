"""Spans for others' tools: as a file in OTLP's JSON, and to a collector over HTTP."""

import base64
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict  # type: ignore[import-not-found]
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

TIMEOUT_S = 5.0
IDS = ("traceId", "spanId", "parentSpanId")


def to_json(spans: Sequence[ReadableSpan]) -> str:
    """One ExportTraceServiceRequest as one line: what the collector's otlpjsonfile receiver reads.

    OTLP's JSON is protobuf's, but for ids, which are hexadecimal, and enums, which are numbers.
    """
    told: dict[str, Any] = {"resourceSpans": []}
    told |= MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for group in told["resourceSpans"]:
        for scope in group["scopeSpans"]:
            for span in scope["spans"]:
                span |= {key: _hexadecimal(span[key]) for key in IDS if key in span}
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False) + "\n"


def write(path: Path, spans: Sequence[ReadableSpan]) -> None:
    """The file, at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(to_json(spans), "utf-8")
    os.replace(partial, path)


def export(endpoint: str, spans: Sequence[ReadableSpan], *, timeout_s: float = TIMEOUT_S) -> None:
    """Send them to a collector, as in http://127.0.0.1:4318/v1/traces.

    ConnectionError when it has not taken them after `timeout_s`; what OpenTelemetry's own
    environment variables say of headers, compression and certificates holds.
    """
    told = _Said()
    logger = logging.getLogger("opentelemetry.exporter")
    logger.addHandler(told)
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=timeout_s)
    try:
        if exporter.export(spans) is not SpanExportResult.SUCCESS:
            raise ConnectionError(f"the collector at {endpoint} took no trace: {told.last}")
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]
        logger.removeHandler(told)


class _Said(logging.Handler):
    """The exporter's last word: it logs why it failed, and returns only that it did."""

    last = "no reason given"

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def _hexadecimal(text: str) -> str:
    return base64.b64decode(text).hex()
