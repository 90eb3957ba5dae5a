"""The HTTP endpoint that an orchestrator's probes ask, and the thread that asks the stages."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from deploy.errors import ServerFailed
from deploy.keeper import Keeper
from deploy.launcher import Server
from deploy.pod.health import PATHS, Health
from deploy.proxies import has_control
from deploy.readiness import Probe, can_be_probed, probing

LOOK_EVERY_S: Final = 1.0
JOIN_S: Final = 3.0


@dataclass(frozen=True)
class Manner:
    """How stages of a kind are asked: how often, how long an answer is waited for, and how long
    they may be silent and be ready all the same."""

    every_s: float
    answer_s: float
    silent_s: float


QUEUES: Final = Manner(0.0, 2.0, 5.0)
"""Stages with a queue of their own, which answer an order on arrival, whatever they compute."""

GRAPHS: Final = Manner(10.0, 15.0, 60.0)
"""Others are given a small request, which waits behind all that is there. One that takes as long as
that has failed the turns that wait for it as well (`no_progress_ms`)."""


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
    """Every stage of a server that is kept is asked again and again, while the block runs."""
    ended = threading.Event()
    asked = {QUEUES: keeper.server.own_queues, GRAPHS: graphs(keeper.server)}
    patience = {name: manner.silent_s for manner, names in asked.items() for name in names}
    health.started(patience, time.monotonic())
    threads = [
        threading.Thread(target=_ask, args=[keeper, health, ended, *one], name="pulse", daemon=True)
        for one in asked.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(JOIN_S)  # a graph that hangs is not waited for


def graphs(server: Server) -> list[str]:
    """Models of a server that answer in their turn, and only by computing something."""
    configs = {name: server.config(name) for name in server.models}
    return [name for name, one in configs.items() if can_be_probed(one) and not has_control(one)]


def _ask(
    keeper: Keeper, health: Health, ended: threading.Event, manner: Manner, names: Sequence[str]
) -> None:
    """One that has failed is asked again at once."""
    due_at = dict.fromkeys(names, 0.0)
    with probing(keeper.server.grpc_address, keeper.server.access) as probe:
        while not ended.wait(LOOK_EVERY_S):
            _look(keeper, health, probe)
            for name in names:
                if health.server_away or ended.is_set() or time.monotonic() < due_at[name]:
                    continue
                fault = _fault(probe, keeper, name, manner.answer_s)
                now = time.monotonic()
                health.heard(name, fault, now)
                due_at[name] = now if fault else now + manner.every_s


def _look(keeper: Keeper, health: Health, probe: Probe) -> None:
    """At the server itself."""
    serves = keeper.phase == "ready"
    health.kept(time.monotonic(), serves=serves)
    if not serves:
        health.server_away = f"the server is {keeper.phase}"
    else:
        is_ready = probe.server_is_ready()
        health.server_away = "" if is_ready else "the server says that it is not ready"


def _fault(probe: Probe, keeper: Keeper, stage: str, timeout_s: float) -> str:
    """What came instead of an answer."""
    try:
        probe.infer(keeper.server.config(stage), timeout_s)
    except ServerFailed as failure:
        return str(failure)
    return ""
