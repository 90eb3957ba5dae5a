"""What a front door tells a collector."""

import json
import threading
from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanKind

from client.responses import Event
from client.trace import TracedTurn
from client.trace import to_spans as clients_spans
from client.traceparent import new_traceparent
from python_backends.bridge.meters import Tally
from python_backends.tracing.door_turn import DoorTurn, entries
from python_backends.tracing.exporter import BATCH, WAITING, Exporter
from python_backends.tracing.turns import to_spans

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
WAIT_S = 20.0


def entry(stage: str = "think", what: str = "compute", start_ns: int = 10, **more: Any) -> bytes:
    told = {"stage": stage, "turn": "t~1", "piece": 0, "what": what, "start_ns": start_ns}
    return json.dumps({**told, "end_ns": start_ns + 5, **more}).encode()


def turn(number: int = 1, traceparent: str = "", failure: str = "", **more: Any) -> DoorTurn:
    events = (entry(), entry("speak", start_ns=20, members=3))
    given = {"first_ns": 25, "events": events, **more}
    return DoorTurn(f"t-{number}", traceparent, 5, 40, failure=failure, **given)


class Collector:
    """Takes what it is given once it is `open`, or refuses it."""

    def __init__(self, *, takes: bool = True) -> None:
        self.takes, self.open, self.asked = takes, threading.Event(), threading.Event()
        self.batches: list[Sequence[ReadableSpan]] = []
        self.ended = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        assert self.open.wait(WAIT_S)
        self.batches.append(spans)
        return SpanExportResult.SUCCESS if self.takes else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self.ended = True


def counted(tally: Tally) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, labels, value in tally.take():
        assert name == "spans_total"
        found[dict(labels)["result"]] = found.get(dict(labels)["result"], 0) + value
    return found


def test_the_doors_span_holds_the_stages_and_hangs_below_the_callers() -> None:
    root, *children = to_spans(turn(traceparent=TRACEPARENT), 1000)
    assert f"{root.context.trace_id:032x}" == TRACEPARENT[3:35]
    assert f"{root.parent.span_id:016x}" == TRACEPARENT[36:52]
    assert (root.kind, root.start_time, root.end_time) == (SpanKind.SERVER, 1005, 1040)
    assert [(one.name, one.timestamp) for one in root.events] == [("first response", 1025)]
    assert [child.name for child in children] == ["think compute", "speak compute"]
    assert {child.parent.span_id for child in children} == {root.context.span_id}
    assert children[1].attributes["members"] == 3


def test_a_turn_without_a_trace_gets_one_and_a_failed_one_says_why() -> None:
    (root, *_), (other, *_) = (to_spans(turn(failure="OVERLOADED"), 0) for _ in range(2))
    assert root.parent is None
    assert root.context.trace_id != other.context.trace_id
    assert root.attributes["error.type"] == "OVERLOADED"
    assert not root.status.is_ok


def test_entries_that_are_no_spans_are_left_out() -> None:
    broken = [b"", b"[]", b"null", b"{}", b'{"stage": "x"}', b"\xff", b"1"]
    endless = entry().replace(b'"start_ns": 10', b'"start_ns": 1e999')
    broken += [endless, entry(piece=float("nan"))]
    assert [one.stage for one in entries([*broken, entry()])] == ["think"]


def test_what_was_sent_and_what_was_refused_is_counted() -> None:
    for takes, result in ((True, "sent"), (False, "dropped")):
        tally, collector = Tally(), Collector(takes=takes)
        exporter = Exporter("http://nowhere", tally, collector)
        collector.open.set()
        exporter.offer(turn())
        exporter.close()
        assert counted(tally) == {"sent": 0, "dropped": 0} | {result: 3}
        assert collector.ended


def test_a_collector_that_hangs_holds_nobody_and_what_is_too_much_is_dropped_and_counted() -> None:
    tally, collector = Tally(), Collector()
    exporter = Exporter("http://nowhere", tally, collector)
    exporter.offer(turn(0))
    assert collector.asked.wait(WAIT_S)
    for number in range(WAITING + 10):
        exporter.offer(turn(number))
    assert counted(tally)["dropped"] == 3 * 10
    collector.open.set()
    exporter.close()
    assert counted(tally) == {"sent": 3 * (WAITING + 1)}
    assert max(map(len, collector.batches)) == 3 * BATCH


def test_a_turn_that_cannot_be_told_is_dropped_and_counted_and_the_next_one_is_sent() -> None:
    tally, collector = Tally(), Collector()
    collector.open.set()
    exporter = Exporter("http://nowhere", tally, collector)
    exporter.offer(turn(1, traceparent="00-no-trace-01"))
    exporter.offer(turn(2))
    exporter.close()
    assert counted(tally) == {"sent": 3, "dropped": 3}


def test_whatever_a_stage_tells_can_be_written_down() -> None:
    """One that cannot would cost every turn of its batch."""
    odd = [
        entry(start_ns=10**30),
        entry(start_ns=-1),
        entry(huge=10**30, half="\ud800", nested={"x": ["\ud800", 10**30]}),
        entry("\ud800", "\ud800", piece=10**30),
        entry(**{"\ud800": 1.5}),
    ]
    spans = to_spans(turn(events=tuple(odd)), 1_800_000_000 * 10**9)
    assert len(spans) == 1 + 3
    assert encode_spans(spans).SerializePartialToString()


def test_a_turn_that_its_caller_does_not_sample_is_not_sent() -> None:
    tally, collector = Tally(), Collector()
    collector.open.set()
    exporter = Exporter("http://nowhere", tally, collector)
    exporter.offer(turn(traceparent=TRACEPARENT[:-2] + "00"))
    exporter.close()
    assert collector.batches == []


def test_a_client_tells_only_of_itself_where_the_door_tells_of_the_rest() -> None:
    def spans(**more: Any) -> list[ReadableSpan]:
        event = Event("turn", "t", 0, "relay", 5, 10, more)
        return clients_spans(TracedTurn("t", new_traceparent("t"), 0, 20, (event,)), 0)

    assert len(spans()) == 2
    assert len(spans(exported=True)) == 1
