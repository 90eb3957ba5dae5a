"""W3C trace context: by which name a turn, and the client's own span of it, are known everywhere.

The client's span has an id that follows from trace and turn, so whoever reads a `traceparent` can
tell whether the client began the trace: then the parent id named in it is that very span.
"""

import hashlib
import secrets

from python_backends.errors import InvalidInput
from python_backends.tracing.ids import derived_id


def new_traceparent(turn_id: str) -> str:
    """The `traceparent` of a turn that begins a trace."""
    return first_traceparent(secrets.token_hex(16), turn_id)


def derived_traceparent(turn_id: str) -> str:
    """For a turn that was sent without one: always the same."""
    return first_traceparent(hashlib.sha256(turn_id.encode()).hexdigest()[:32], turn_id)


def first_traceparent(trace_id: str, turn_id: str) -> str:
    """Version 00, sampled, with the client's span of the turn as parent of all that follows."""
    return f"00-{trace_id}-{root_span_id(trace_id, turn_id):016x}-01"


def checked(traceparent: str) -> str:
    """A caller's `traceparent`, without blanks around it; InvalidInput unless it is one."""
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    found = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    if not get_current_span(found).get_span_context().is_valid:
        raise InvalidInput(f"{traceparent[:80]!r} is no traceparent: 00-<32 hex>-<16 hex>-<2 hex>")
    return traceparent.strip(" \t")


def trace_id(traceparent: str) -> str:
    """32 hex digits, of a `traceparent` that was checked; "" of ""."""
    return traceparent.split("-")[1] if traceparent else ""


def root_span_id(trace: str, turn_id: str) -> int:
    """Of the client's span of a turn, 64 bits."""
    return derived_id(trace, "client", turn_id)
