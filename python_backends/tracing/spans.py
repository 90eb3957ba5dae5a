"""What the stages did with a turn, as OpenTelemetry spans below the one of whoever tells of it."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

from python_backends.tracing.ids import derived_id

Attributes = dict[str, str | bool | int | float]
MOST_INT: Final = 1 << 63
SCOPE: Final = InstrumentationScope("tristage")


class StageSpan(Protocol):
    """One entry of EVENTS, as the client, the ledger and the door read them."""

    @property
    def stage(self) -> str: ...
    @property
    def what(self) -> str: ...
    @property
    def piece(self) -> int: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def more(self) -> Mapping[str, Any]: ...


def unix_offset_ns() -> int:
    """What added to CLOCK_MONOTONIC gives unix time; true to the ns between two of its readings."""
    before_ns, unix_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return unix_ns - (before_ns + after_ns) // 2


def children(
    turn: str, spans: Sequence[StageSpan], parent: SpanContext, shift_ns: int, *, shared: bool
) -> list[ReadableSpan]:
    """Every different span below `parent`, by start; `shift_ns` added to their times gives unix
    time. `shared`: the trace may have other turns."""
    ids = _ids(turn, spans, f"{parent.trace_id:032x}", shared=shared)
    return [_child(span, span_id, parent, shift_ns) for span, span_id in ids]


def resource(part: str) -> Resource:
    """Of a part of the product."""
    return Resource({"service.name": f"tristage-{part}"})


def flags(text: str) -> TraceFlags:
    """Of the last field of a `traceparent`."""
    return TraceFlags(int(text, 16))


def _child(span: StageSpan, span_id: int, parent: SpanContext, shift_ns: int) -> ReadableSpan:
    stage = _text(span.stage)
    told = {"stage": stage, "what": span.what, "piece": span.piece, **span.more}
    return ReadableSpan(
        _text(f"{stage} {span.what}"),
        context=SpanContext(parent.trace_id, span_id, False, parent.trace_flags),
        parent=parent,
        resource=resource(stage),
        attributes={
            _text(name): _plain(value) for name, value in told.items() if value is not None
        },
        start_time=span.start_ns + shift_ns,
        end_time=span.end_ns + shift_ns,
        instrumentation_scope=SCOPE,
    )


def _ids(
    turn: str, spans: Sequence[StageSpan], trace: str, *, shared: bool
) -> Iterator[tuple[StageSpan, int]]:
    """Every different span, by start, with the id that follows from it.

    Spans that differ only in what they tell beside are numbered: two windows of one encoder batch
    begin at the same moment. So do those of two turns in one batch, and a caller's trace, which is
    `shared`, may have both: there the turn's id goes in too.
    """
    distinct = {_identity(span): span for span in spans}
    seen: Counter[tuple[str, str, int, int]] = Counter()
    for _, span in sorted(distinct.items(), key=lambda item: item[0]):
        key = (span.stage, span.what, span.piece, span.start_ns)
        more = [turn] * shared + [seen[key]] * bool(seen[key])
        yield span, derived_id(trace, *key, *more)
        seen[key] += 1


def _identity(span: StageSpan) -> tuple[int, int, str, str, int, str]:
    more = json.dumps(dict(span.more), sort_keys=True, default=str)
    return span.start_ns, span.end_ns, span.stage, span.what, span.piece, more


def _plain(value: Any) -> str | bool | int | float:
    """What OTLP can hold: one span that cannot be written down would cost all of its batch."""
    match value:
        case str():
            return _text(value)
        case bool() | float():
            return value
        case int() if -MOST_INT <= value < MOST_INT:
            return value
        case _:
            return json.dumps(value, default=str)


def _text(value: str) -> str:
    """Half a pair of UTF-16, which JSON lets through, is no text."""
    return value.encode(errors="replace").decode()
