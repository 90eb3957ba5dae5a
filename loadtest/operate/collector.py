"""Real collectors of traces (rotel) and of logs (otelcol), and what they pass on."""

import gzip
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from deploy.processes import LOCALHOST, free_ports, is_free
from loadtest.operate import tools

START_S: Final = 10.0
PATH: Final = "/v1/traces"
LOGS_PATH: Final = "/v1/logs"


class CollectorFailed(Exception):
    """It did not start."""


@dataclass
class Sink:
    """Where the collector sends what it has taken. Any thread may read."""

    port: int
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    logs: list[ExportLogsServiceRequest] = field(default_factory=list)

    def spans(self) -> list[tuple[str, Span]]:
        """Every span with the name of its service, in the order they came."""
        return [
            (_service(group.resource.attributes), span)
            for request in list(self.requests)
            for group in request.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]

    def records(self) -> list[LogRecord]:
        """Every record of a log, in the order they came."""
        return [
            record
            for request in list(self.logs)
            for group in request.resource_logs
            for scope in group.scope_logs
            for record in scope.log_records
        ]

    def wait_for(self, spans: int, timeout_s: float) -> list[tuple[str, Span]]:
        """Until there are so many, or the time is over; what there is."""
        deadline = time.monotonic() + timeout_s
        while len(found := self.spans()) < spans and time.monotonic() < deadline:
            time.sleep(0.05)
        return found


@dataclass(frozen=True)
class Collector:
    """One that runs, between whoever exports and the sink."""

    endpoint: str
    """For OTLP over HTTP."""

    sink: Sink


@contextmanager
def collecting(folder: Path) -> Iterator[Collector]:
    """A collector and its sink, which end with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with receiving() as sink:
        grpc, http = free_ports(2)
        command = [str(tools.rotel()), "start", "--log-format", "json"]
        command += ["--otlp-grpc-endpoint", f"{LOCALHOST}:{grpc}"]
        command += ["--otlp-http-endpoint", f"{LOCALHOST}:{http}"]
        command += ["--exporter", "otlp", "--otlp-exporter-protocol", "http"]
        command += ["--otlp-exporter-endpoint", f"http://{LOCALHOST}:{sink.port}"]
        command += ["--otlp-exporter-compression", "none"]
        command += ["--pid-file", str(folder / "rotel.pid")]
        log = folder / "rotel.log"
        with log.open("wb") as kept, subprocess.Popen(command, stdout=kept, stderr=kept) as process:
            try:
                _wait_until_up(http, process, log)
                yield Collector(f"http://{LOCALHOST}:{http}{PATH}", sink)
            finally:
                process.terminate()


@contextmanager
def reading(log: Path, folder: Path) -> Iterator[Sink]:
    """A collector that reads a log of JSON objects, a line each, as operators would have it."""
    folder.mkdir(parents=True, exist_ok=True)
    with receiving() as sink:
        file = folder / "otelcol.yaml"
        file.write_text(yaml.safe_dump(_log_configuration(log, sink.port)))
        command = [str(tools.otelcol()), f"--config={file}"]
        said = folder / "otelcol.log"
        with (
            said.open("wb") as kept,
            subprocess.Popen(command, stdout=kept, stderr=kept) as process,
        ):
            try:
                yield sink
            finally:
                process.terminate()


def _log_configuration(log: Path, port: int) -> dict[str, Any]:
    parser = {
        "type": "json_parser",
        "timestamp": {
            "parse_from": "attributes.time",
            "layout_type": "gotime",
            "layout": "2006-01-02T15:04:05.000000Z",
        },
        "severity": {"parse_from": "attributes.level"},
    }
    reader = {"include": [str(log)], "start_at": "beginning", "operators": [parser]}
    endpoint = f"http://{LOCALHOST}:{port}"
    pipeline = {"receivers": ["filelog"], "exporters": ["otlphttp"]}
    return {
        "receivers": {"filelog": reader},
        "exporters": {"otlphttp": {"endpoint": endpoint}},
        "service": {"telemetry": {"metrics": {"level": "none"}}, "pipelines": {"logs": pipeline}},
    }


@contextmanager
def receiving() -> Iterator[Sink]:
    """A sink alone: takes traces and logs in OTLP over HTTP, as protobuf."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == LOGS_PATH:
                sink.logs.append(ExportLogsServiceRequest.FromString(body))
            else:
                sink.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer((LOCALHOST, 0), Handler) as server:
        sink = Sink(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield sink
        finally:
            server.shutdown()
            thread.join()


def _service(attributes: Any) -> str:
    found = [one.value.string_value for one in attributes if one.key == "service.name"]
    return found[0] if found else ""


def _wait_until_up(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_S
    while is_free(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise CollectorFailed(
                f"rotel did not start:\n{log.read_text(errors='replace')[-2000:]}"
            )
        time.sleep(0.05)
