"""A turn as OpenTelemetry spans: the client's turn, and below it what every stage did with it.

All that is known of a turn travels with it, in EVENTS. So one reader makes the whole trace, of
however many servers, and needs no collector beside any of them. A door that sends traces itself
says so there: then the client's own span is all that is missing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from opentelemetry.sdk.trace import Event as Moment
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from client.record import TurnRecord
from client.traceparent import root_span_id
from python_backends.tracing.door_turn import EXPORTED
from python_backends.tracing.spans import (
    SCOPE,
    Attributes,
    StageSpan,
    children,
    flags,
    resource,
)


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
    known = any(span.more.get(EXPORTED) for span in turn.spans)
    spans = () if known else turn.spans
    shared = root.parent is not None
    return [root, *children(turn.turn_id, spans, parent, shift_ns, shared=shared)]


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
        resource=resource("client"),
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
    _, trace, parent, sampled = turn.traceparent.split("-")[:4]
    root_id = root_span_id(trace, turn.turn_id)
    own = SpanContext(int(trace, 16), root_id, is_remote=False, trace_flags=flags(sampled))
    caller = SpanContext(
        int(trace, 16), int(parent, 16), is_remote=True, trace_flags=flags(sampled)
    )
    return own, None if caller.span_id == root_id else caller
