"""A turn's trace is complete, stable and true, whoever reads it."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan

from client import otlp
from client.__main__ import main
from client.commands import DEFAULT_SAMPLE
from client.responses import Event
from client.trace import TracedTurn, clock_shift_ns, to_spans
from client.traceparent import derived_traceparent, new_traceparent, root_span_id
from python_backends.bridge.options import Options
from python_backends.tracing.ids import derived_id
from python_backends.tracing.spans import unix_offset_ns
from tests.unit.fake_triton import Message, chunk, failure, serving, two_pieces

MS = 1_000_000
OFFSET_NS = 1_700_000_000_000_000_000
CALLERS = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def event(stage: str, what: str, start_ms: int, end_ms: int, piece: int = 0, **more: Any) -> Event:
    return Event(stage, "t", piece, what, start_ms * MS, end_ms * MS, more)


EVENTS = (
    event("encode", "queue", 2, 4, window=0),
    event("encode", "compute", 4, 30, window=0, members=3),
    event("encode", "compute", 4, 30, window=1, members=3),
    event("think", "remote", 30, 90, replica="think-1"),
    event("think", "first_token", 32, 60),
    event("think", "compute", 60, 88, tokens=7),
    event("acoustic", "compute", 92, 99, piece=1, key=["b", 4]),
    event("turn", "relay", 1, 100),
)


def traced(events: tuple[Event, ...] = EVENTS, traceparent: str = "", **more: Any) -> TracedTurn:
    header = traceparent or derived_traceparent("t")
    return TracedTurn("t", header, 0, 105 * MS, events, **{"first_audio_ns": 101 * MS, **more})


def parsed(text: str) -> ExportTraceServiceRequest:
    """OTLP's JSON by protobuf's own reader, which wants ids in base64."""
    told = json.loads(text)
    for span in spans_in(told):
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in span:
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return ParseDict(told, ExportTraceServiceRequest())


def spans_in(told: dict[str, Any]) -> list[dict[str, Any]]:
    scopes = [scope for group in told["resourceSpans"] for scope in group["scopeSpans"]]
    return [span for scope in scopes for span in scope["spans"]]


def ids(spans: list[ReadableSpan]) -> list[int]:
    return [span.context.span_id for span in spans]


def test_the_clients_turn_is_the_parent_of_every_stages_span() -> None:
    root, *children = to_spans(traced(), OFFSET_NS)
    assert len(children) == len(EVENTS)
    assert root.parent is None
    assert {child.parent.span_id for child in children} == {root.context.span_id}
    assert {child.context.trace_id for child in children} == {root.context.trace_id}
    assert [child.name for child in children][:2] == ["turn relay", "encode queue"]
    assert {child.resource.attributes["service.name"] for child in children} == {
        "tristage-turn",
        "tristage-encode",
        "tristage-think",
        "tristage-acoustic",
    }
    assert root.resource.attributes["service.name"] == "tristage-client"


def test_times_are_unix_times_within_the_turn() -> None:
    root, *children = to_spans(traced(), OFFSET_NS)
    assert (root.start_time, root.end_time) == (OFFSET_NS, OFFSET_NS + 105 * MS)
    assert [(moment.name, moment.timestamp) for moment in root.events] == [
        ("first audio", OFFSET_NS + 101 * MS)
    ]
    for child in children:
        assert root.start_time <= child.start_time <= child.end_time <= root.end_time


def test_a_span_carries_what_its_stage_told() -> None:
    told = {span.name: span.attributes for span in to_spans(traced(), OFFSET_NS)}
    assert told["think remote"] == {
        "stage": "think",
        "what": "remote",
        "piece": 0,
        "replica": "think-1",
    }
    assert told["encode compute"]["members"] == 3
    assert told["acoustic compute"]["key"] == '["b", 4]'


def test_ids_follow_from_the_turn_whatever_order_or_number_its_spans_came_in() -> None:
    spans = to_spans(traced(), OFFSET_NS)
    again = to_spans(traced((*reversed(EVENTS), *EVENTS[:3])), 5 * OFFSET_NS)
    assert ids(spans) == ids(again)
    assert len(set(ids(spans))) == len(EVENTS) + 1
    trace = f"{spans[0].context.trace_id:032x}"
    think = next(span for span in spans if span.name == "think compute")
    assert think.context.span_id == derived_id(trace, "think", "compute", 0, 60 * MS)


def test_a_trace_that_a_caller_began_goes_on_below_the_callers_span() -> None:
    root, *children = to_spans(traced(traceparent=CALLERS), OFFSET_NS)
    assert f"{root.context.trace_id:032x}" == CALLERS[3:35]
    assert f"{root.parent.span_id:016x}" == CALLERS[36:52]
    assert root.parent.is_remote
    assert {child.parent.span_id for child in children} == {root.context.span_id}


def test_two_turns_of_one_trace_share_no_span_though_one_batch_served_both() -> None:
    """Members of a pass have its times in common; with a caller's trace, the trace id as well."""
    one = traced(traceparent=CALLERS)
    spans = [*to_spans(one, OFFSET_NS), *to_spans(replace(one, turn_id="other"), OFFSET_NS)]
    assert len(set(ids(spans))) == len(spans)


def test_a_new_trace_names_the_clients_span_and_is_one_that_servers_take() -> None:
    first, second = new_traceparent("t"), new_traceparent("t")
    assert first[3:35] != second[3:35]
    assert int(first[36:52], 16) == root_span_id(first[3:35], "t")
    for header in (first, second, derived_traceparent("x")):
        Options(traceparent=header)


def test_a_failed_turn_says_so_and_keeps_what_was_known() -> None:
    root, *children = to_spans(traced(failure="think is gone", first_audio_ns=None), OFFSET_NS)
    assert not root.status.is_ok
    assert root.status.description == "think is gone"
    assert not root.events
    assert len(children) == len(EVENTS)
    assert len(to_spans(traced(()), OFFSET_NS)) == 1


def test_one_clock_is_left_alone_and_another_machines_is_centred_in_the_turn() -> None:
    assert clock_shift_ns(traced()) == 0
    hour_ns = 3_600_000 * MS
    shifted = tuple(
        replace(e, start_ns=e.start_ns + hour_ns, end_ns=e.end_ns + hour_ns) for e in EVENTS
    )
    root, *children = to_spans(traced(shifted), OFFSET_NS)
    before = min(child.start_time for child in children) - root.start_time
    behind = root.end_time - max(child.end_time for child in children)
    assert before == behind == 3 * MS


def test_the_offset_to_unix_time_is_steady() -> None:
    assert abs(unix_offset_ns() - unix_offset_ns()) < 50 * MS


def test_otlp_json_has_hexadecimal_ids_and_reads_back_as_protobuf(tmp_path: Path) -> None:
    spans = to_spans(traced(traceparent=CALLERS), OFFSET_NS)
    otlp.write(tmp_path / "deep" / "trace.otlp.json", spans)
    text = (tmp_path / "deep" / "trace.otlp.json").read_text()
    assert text.count("\n") == 1
    assert {span["traceId"] for span in spans_in(json.loads(text))} == {CALLERS[3:35]}
    request = parsed(text)
    found = [s for group in request.resource_spans for x in group.scope_spans for s in x.spans]
    assert sorted(int.from_bytes(span.span_id) for span in found) == sorted(ids(spans))
    client = [span for span in found if span.name == "turn"]
    assert [span.kind for span in client] == [3]
    assert client[0].start_time_unix_nano == OFFSET_NS


def test_nothing_is_an_empty_request() -> None:
    assert not parsed(otlp.to_json([])).resource_spans


class Collector(BaseHTTPRequestHandler):
    """Takes OTLP over HTTP, or refuses it."""

    taken: ClassVar[list[tuple[str, ExportTraceServiceRequest]]]
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.taken.append((self.path, ExportTraceServiceRequest.FromString(body)))
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def collecting(answer: int = 200) -> Iterator[tuple[list[Any], str]]:
    class Mine(Collector):
        taken: ClassVar = []
        status = answer

    with HTTPServer(("127.0.0.1", 0), Mine) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Mine.taken, f"http://127.0.0.1:{server.server_port}/v1/traces"
        finally:
            server.shutdown()
            thread.join()


def test_a_collector_gets_the_same_spans_over_http() -> None:
    spans = to_spans(traced(), OFFSET_NS)
    with collecting() as (taken, endpoint):
        otlp.export(endpoint, spans)
    ((path, request),) = taken
    assert path == "/v1/traces"
    assert request == parsed(otlp.to_json(spans))


def test_a_collector_that_refuses_or_is_away_is_an_error_that_names_it() -> None:
    spans = to_spans(traced(), OFFSET_NS)
    with (
        collecting(400) as (_, endpoint),
        pytest.raises(ConnectionError, match=rf"{endpoint} took no trace: .*400"),
    ):
        otlp.export(endpoint, spans)
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1"):
        otlp.export("http://127.0.0.1:1/v1/traces", spans, timeout_s=0.2)


def test_the_command_line_writes_and_sends_the_trace_of_the_turn(tmp_path: Path) -> None:
    file, figures = tmp_path / "trace.otlp.json", tmp_path / "run.json"
    with serving(two_pieces) as (fake, address), collecting() as (taken, endpoint):
        kept = ["--otlp-file", str(file), "--otlp-endpoint", endpoint, "--json", str(figures)]
        context = ["--traceparent", CALLERS]
        assert main(["turn", str(DEFAULT_SAMPLE), "--server", address, *kept, *context]) == 0
    assert fake.requests[0].parameters["traceparent"].string_param == CALLERS
    assert json.loads(figures.read_text())["trace_id"] == CALLERS[3:35]
    ((_, request),) = taken
    assert request == parsed(file.read_text())
    names = sorted(span["name"] for span in spans_in(json.loads(file.read_text())))
    assert names == ["think compute", "think compute", "turn"]


def test_the_environment_may_name_the_trace_and_nonsense_there_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent = []
    for header in (CALLERS, "nonsense"):
        monkeypatch.setenv("TRACEPARENT", header)
        with serving(two_pieces) as (fake, address):
            assert main(["turn", str(DEFAULT_SAMPLE), "--server", address]) == 0
        sent.append(fake.requests[0].parameters["traceparent"].string_param)
    assert sent[0] == CALLERS
    assert len(sent[1]) == len(CALLERS)
    assert main(["turn", str(DEFAULT_SAMPLE), "--traceparent", "nonsense"]) == 1


def test_a_turn_that_fails_leaves_a_trace_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(request: Any, context: Any) -> Iterator[Message]:
        yield chunk(request, 0, 0, 0)
        yield failure(request, "[tristage code=INTERNAL stage=think] the stage died")

    file = tmp_path / "trace.otlp.json"
    with serving(broken) as (_, address):
        command = ["turn", str(DEFAULT_SAMPLE), "--server", address, "--otlp-file", str(file)]
        assert main(command) == 1
    (root,) = [span for span in spans_in(json.loads(file.read_text())) if span["name"] == "turn"]
    assert root["status"]["code"] == 2
    assert root["status"]["message"] == "INTERNAL at think: the stage died"
    assert capsys.readouterr().err.count("\n") == 1


def test_a_collector_that_is_away_costs_a_line_and_not_the_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reply = tmp_path / "reply.wav"
    with serving(two_pieces) as (_, address), collecting(400) as (_, endpoint):
        kept = ["--otlp-endpoint", endpoint, "--out", str(reply)]
        assert main(["turn", str(DEFAULT_SAMPLE), "--server", address, *kept]) == 0
    assert reply.exists()
    said = capsys.readouterr().err
    assert said.startswith("warning: the collector at http://127.0.0.1")
    assert said.count("\n") == 1
