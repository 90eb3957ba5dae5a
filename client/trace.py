"""A turn as OpenTelemetry spans: the client's turn, and below it what every stage did with it.

Servers export nothing: all that is known of a turn travels with it, in EVENTS. So one reader makes
the whole trace, of however many servers, and needs no collector beside any of them.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event as Moment
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from client.record import TurnRecord
from client.traceparent import derived_id, root_span_id

Attributes = dict[str, str | bool | int | float]
SCOPE = InstrumentationScope("tristage")


class StageSpan(Protocol):
    """One entry of EVENTS, as the client and the ledger read them."""

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


@dataclass(frozen=True)
class TracedTurn:
    """What is traced of a turn; times are CLOCK_MONOTONIC of the client, those of `spans` may be
    another machine's."""

    turn_id: str
    traceparent: str
    sent_ns: int
    end_ns: int
    spans: Sequence[StageSpan]
    first_audio_ns: int | None = None
    failure: str = ""
    """Why it was not answered; empty when it was."""

    @classmethod
    def of(cls, record: TurnRecord, failure: str = "") -> Self:
        """An answered turn ends with its last chunk, a failed one now."""
        sound = record.first_sound
        return cls(
            turn_id=record.turn_id,
            traceparent=record.traceparent,
            sent_ns=record.sent_ns,
            end_ns=time.monotonic_ns() if failure else record.chunks[-1].received_ns,
            spans=record.events,
            first_audio_ns=sound.received_ns if sound else None,
            failure=failure,
        )


def unix_offset_ns() -> int:
    """What added to CLOCK_MONOTONIC gives unix time; true to the ns between two of its readings."""
    before_ns, unix_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return unix_ns - (before_ns + after_ns) // 2


def clock_shift_ns(turn: TracedTurn) -> int:
    """What added to the stages' clock gives the client's: 0 where their spans fit into the turn.

    Where they do not, the client is on another machine, and the middle of the shifts that make
    them fit is taken: the way there and the way back are thought to last equally long.
    """
    if not turn.spans:
        return 0
    least_ns = turn.sent_ns - min(span.start_ns for span in turn.spans)
    most_ns = turn.end_ns - max(span.end_ns for span in turn.spans)
    return 0 if least_ns <= 0 <= most_ns else (least_ns + most_ns) // 2


def to_spans(turn: TracedTurn, offset_ns: int) -> list[ReadableSpan]:
    """The client's span, which is the parent of all others, then the stages', by start.

    `offset_ns` is `unix_offset_ns` of the client.
    """
    root = _root(turn, offset_ns)
    parent = root.get_span_context()
    assert parent is not None
    shift_ns = offset_ns + clock_shift_ns(turn)
    ids = _ids(turn, f"{parent.trace_id:032x}", shared=root.parent is not None)
    return [root, *(_child(span, span_id, parent, shift_ns) for span, span_id in ids)]


def _root(turn: TracedTurn, offset_ns: int) -> ReadableSpan:
    own, caller = _contexts(turn)
    heard = turn.first_audio_ns
    moments = [] if heard is None else [Moment("first audio", timestamp=heard + offset_ns)]
    attributes: Attributes = {"turn": turn.turn_id}
    if heard is not None:
        attributes["first_audio_ms"] = (heard - turn.sent_ns) / 1e6
    return ReadableSpan(
        "turn",
        context=own,
        parent=caller,
        resource=_resource("client"),
        attributes=attributes,
        events=moments,
        kind=SpanKind.CLIENT,
        status=Status(StatusCode.ERROR, turn.failure) if turn.failure else Status(),
        start_time=turn.sent_ns + offset_ns,
        end_time=turn.end_ns + offset_ns,
        instrumentation_scope=SCOPE,
    )


def _contexts(turn: TracedTurn) -> tuple[SpanContext, SpanContext | None]:
    """The client's span and, where the trace is a caller's, the span that it is called from."""
    _, trace, parent, flags = turn.traceparent.split("-")[:4]
    root_id = root_span_id(trace, turn.turn_id)
    own = SpanContext(int(trace, 16), root_id, is_remote=False, trace_flags=_flags(flags))
    caller = SpanContext(int(trace, 16), int(parent, 16), is_remote=True, trace_flags=_flags(flags))
    return own, None if caller.span_id == root_id else caller


def _child(span: StageSpan, span_id: int, parent: SpanContext, shift_ns: int) -> ReadableSpan:
    told = {"stage": span.stage, "what": span.what, "piece": span.piece, **span.more}
    return ReadableSpan(
        f"{span.stage} {span.what}",
        context=SpanContext(parent.trace_id, span_id, False, parent.trace_flags),
        parent=parent,
        resource=_resource(span.stage),
        attributes={name: _plain(value) for name, value in told.items() if value is not None},
        start_time=span.start_ns + shift_ns,
        end_time=span.end_ns + shift_ns,
        instrumentation_scope=SCOPE,
    )


def _ids(turn: TracedTurn, trace: str, *, shared: bool) -> Iterator[tuple[StageSpan, int]]:
    """Every different span, by start, with the id that follows from it.

    Spans that differ only in what they tell beside are numbered: two windows of one encoder batch
    begin at the same moment. So do those of two turns in one batch, and a caller's trace, which is
    `shared`, may have both: there the turn's id goes in too.
    """
    distinct = {_identity(span): span for span in turn.spans}
    seen: Counter[tuple[str, str, int, int]] = Counter()
    for _, span in sorted(distinct.items(), key=lambda item: item[0]):
        key = (span.stage, span.what, span.piece, span.start_ns)
        more = [turn.turn_id] * shared + [seen[key]] * bool(seen[key])
        yield span, derived_id(trace, *key, *more)
        seen[key] += 1


def _identity(span: StageSpan) -> tuple[int, int, str, str, int, str]:
    more = json.dumps(dict(span.more), sort_keys=True, default=str)
    return span.start_ns, span.end_ns, span.stage, span.what, span.piece, more


def _resource(part: str) -> Resource:
    return Resource({"service.name": f"tristage-{part}"})


def _flags(text: str) -> TraceFlags:
    return TraceFlags(int(text, 16))


def _plain(value: Any) -> str | bool | int | float:
    return value if isinstance(value, str | bool | int | float) else json.dumps(value, default=str)
