"""RUN/otlp.json: the slowest turns as OpenTelemetry traces, for any viewer of those."""

from client import otlp
from client.trace import TracedTurn, to_spans
from client.traceparent import derived_traceparent
from loadtest.ledger.explanation import Explanation
from loadtest.ledger.run import Run, Turn

SLOWEST = 50


def traces(told: Explanation) -> str:
    """One ExportTraceServiceRequest: the slowest answered turns, and the one of the waterfall."""
    offset_ns = unix_offset_ns(told.run)
    turns = chosen(told)
    return otlp.to_json([span for turn in turns for span in to_spans(traced(turn), offset_ns)])


def chosen(told: Explanation) -> list[Turn]:
    """The turns that are traced, the slowest first."""
    slowest = sorted(told.run.answered, key=_latency_ns, reverse=True)[:SLOWEST]
    shown = told.requests.slow()
    return slowest if shown is None or shown in slowest else [*slowest, shown]


def traced(turn: Turn) -> TracedTurn:
    """One turn; without a trace context of its own it gets one that follows from its id."""
    return TracedTurn(
        turn_id=turn.turn,
        traceparent=turn.traceparent or derived_traceparent(turn.turn),
        sent_ns=turn.sent_ns,
        end_ns=turn.end_ns,
        spans=turn.spans,
        first_audio_ns=turn.sound[0][0] if turn.sound else None,
    )


def unix_offset_ns(run: Run) -> int:
    """What added to the run's clock gives unix time, to the second: its turns were written last
    when it ended. The machine may have been started again since, so its clocks do not tell."""
    return (run.folder / "turns.jsonl").stat().st_mtime_ns - run.ended_ns


def _latency_ns(turn: Turn) -> int:
    return turn.end_ns - turn.intended_ns
