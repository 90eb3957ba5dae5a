"""A turn as the front door saw it: its own span, which is the parent of what every stage did."""

import secrets

from opentelemetry.sdk.trace import Event as Moment
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from python_backends.tracing.door_turn import DoorTurn, entries
from python_backends.tracing.ids import derived_id
from python_backends.tracing.spans import SCOPE, Attributes, children, flags, resource


def to_spans(turn: DoorTurn, offset_ns: int) -> list[ReadableSpan]:
    """The door's span, then the stages', by start. `offset_ns` added to CLOCK_MONOTONIC gives unix
    time. An entry of EVENTS that cannot be read is left out."""
    own, caller = _contexts(turn)
    moments = (
        [] if turn.first_ns is None else [Moment("first response", None, turn.first_ns + offset_ns)]
    )
    attributes: Attributes = {"turn": turn.turn}
    if turn.first_ns is not None:
        attributes["first_response_ms"] = (turn.first_ns - turn.arrived_ns) / 1e6
    if turn.failure:
        attributes["error.type"] = turn.failure
    root = ReadableSpan(
        "turn",
        context=own,
        parent=caller,
        resource=resource("turn"),
        attributes=attributes,
        events=moments,
        kind=SpanKind.SERVER,
        status=Status(StatusCode.ERROR, turn.failure) if turn.failure else Status(),
        start_time=turn.arrived_ns + offset_ns,
        end_time=turn.end_ns + offset_ns,
        instrumentation_scope=SCOPE,
    )
    shared = caller is not None
    return [root, *children(turn.turn, entries(turn.events), own, offset_ns, shared=shared)]


def _contexts(turn: DoorTurn) -> tuple[SpanContext, SpanContext | None]:
    """Of the door's span, and of the caller's that it is called from."""
    if not turn.traceparent:
        return SpanContext(
            secrets.randbits(128) or 1, _own_id("", turn.turn), False, flags("01")
        ), None
    _, trace, parent, sampled = turn.traceparent.split("-")[:4]
    own = SpanContext(int(trace, 16), _own_id(trace, turn.turn), False, flags(sampled))
    return own, SpanContext(int(trace, 16), int(parent, 16), True, flags(sampled))


def _own_id(trace: str, turn: str) -> int:
    return derived_id(trace, "door", turn)
