"""The HTTP endpoint that an orchestrator's probes ask, and the thread that asks the stages."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from deploy.errors import ServerFailed
from deploy.keeper import Keeper
from deploy.pod.health import PATHS, Health
from deploy.readiness import Probe, probing

ASK_EVERY_S: Final = 1.0
ANSWER_TIMEOUT_S: Final = 2.0


@contextmanager
def answering(health: Health, host: str, port: int) -> Iterator[int]:
    """GET /started, /ready, /live: 200, or 503 with the reasons as a JSON list. The port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path in PATHS
            reasons = health.why_not(self.path, time.monotonic()) if known else list(PATHS)
            body = json.dumps(reasons).encode()
            self.send_response((503 if reasons else 200) if known else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A probe every second is no news."""

    server = ThreadingHTTPServer((host, port), Handler)
    threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def asking(keeper: Keeper, health: Health) -> Iterator[None]:
    """Every stage of a server that is kept is asked every second, while the block runs."""
    ended = threading.Event()
    health.started(keeper.server.own_queues, time.monotonic())
    thread = threading.Thread(target=_ask, args=[keeper, health, ended], name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _ask(keeper: Keeper, health: Health, ended: threading.Event) -> None:
    server = keeper.server
    with probing(server.grpc_address, server.access) as probe:
        while not ended.wait(ASK_EVERY_S):
            health.server_away = _server_away(keeper, probe)
            for stage in server.own_queues if not health.server_away else ():
                health.heard(stage, _fault(probe, keeper, stage), time.monotonic())


def _server_away(keeper: Keeper, probe: Probe) -> str:
    if keeper.phase != "ready":
        return f"the server is {keeper.phase}"
    return "" if probe.server_is_ready() else "the server says that it is not ready"


def _fault(probe: Probe, keeper: Keeper, stage: str) -> str:
    """What came instead of an answer to the order that a stage's own process answers."""
    try:
        probe.infer(keeper.server.config(stage), ANSWER_TIMEOUT_S)
    except ServerFailed as failure:
        return str(failure)
    return ""
