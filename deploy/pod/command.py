"""`python -m deploy pod GROUP [FILE]`: one server of a plan, for an orchestrator to run."""

import argparse
import os
import signal
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

from deploy.cluster.drain import Drain
from deploy.keeper import Keeper, keeping
from deploy.launcher import Server
from deploy.plan import Plan, find
from deploy.pod.health import START_S, Health
from deploy.pod.placing import HEALTH_PORT, PORTS, Place, settings_of
from deploy.pod.probes import answering, asking
from deploy.pod.secret import TRUSTED, kept
from deploy.processes import ANY
from deploy.settings import Ports
from deploy.telling import Json, Text, add_log_format, environment, telling

ATTEMPTS: Final = 5
"""Of starting the server again, one after another, before the pod ends."""

SETTLE_S: Final = 8.0
"""After so long no proxy sends a new turn here: a record of CoreDNS lives 5 s, and a proxy asks
every second."""

DRAIN_S: Final = 60.0
QUIET_S: Final = 2.0
"""A turn has its pieces made one by one: a server that has nothing open for less may have more."""

LOOK_EVERY_S: Final = 0.3


class Terminated(Exception):
    """SIGTERM has come."""


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """The command beside the others of `python -m deploy`."""
    parser = commands.add_parser("pod", help="one server of a plan, for an orchestrator to run")
    parser.set_defaults(action=pod)
    parser.add_argument("group", metavar="GROUP", help="a server of the plan")
    parser.add_argument("file", nargs="?", metavar="FILE", help="a plan, or a shipped one's name")
    parser.add_argument("--host", default=ANY, help="address to listen on (%(default)s)")
    parser.add_argument(
        "--ports",
        type=int,
        nargs=3,
        metavar=("HTTP", "GRPC", "METRICS"),
        default=(PORTS.http, PORTS.grpc, PORTS.metrics),
    )
    parser.add_argument("--health-port", type=int, default=HEALTH_PORT, help="of probes")
    add_log_format(parser)
    parser.add_argument(
        "--tls",
        type=Path,
        help="folder with tls.crt, tls.key and, as the plan says, callers.crt",
    )
    parser.add_argument(
        "--engines",
        type=Path,
        help="compute on the GPU, with what `python -m build tensorrt --repository` made there",
    )
    parser.add_argument(
        "--start-s",
        type=float,
        default=START_S,
        help="what it may take to start, and again (%(default)g)",
    )
    parser.add_argument(
        "--settle-s",
        type=float,
        default=SETTLE_S,
        help="till no proxy comes any more (%(default)g)",
    )
    parser.add_argument(
        "--drain-s", type=float, default=DRAIN_S, help="what SIGTERM gives open turns (%(default)g)"
    )


def pod(options: argparse.Namespace) -> int:
    """Serve until SIGTERM, which lets open turns end first; 1 when the server has ended by itself
    and cannot be started again."""
    signal.signal(signal.SIGTERM, _terminate)
    with kept(options.tls) if options.tls else nullcontext() as tls:
        place = Place(options.host, Ports(*options.ports), tls, options.engines)
        return _pod(options, place)


def _pod(options: argparse.Namespace, place: Place) -> int:
    plan = Plan.read(find(options.file))
    settings = settings_of(plan, options.group, place, options.out, os.environ)
    told = {**settings.environment, **environment(options)}
    says = telling(options, lambda server: f"{options.group}: {server.grpc_address}")
    health = Health(options.start_s)
    settings = replace(settings, environment=told, start_timeout_s=options.start_s)
    server = Server(settings, says.progress)
    if place.tls is not None:
        server.access = replace(server.access, root=str(place.tls / TRUSTED))
    try:
        with says.beside(server), answering(health, options.host, options.health_port):
            server.start(rehearse=not settings.proxies)  # others may not have started yet
            with keeping(server, says.told, attempts=ATTEMPTS) as keeper, asking(keeper, health):
                _serve(keeper, health, says, options)
    except Terminated:
        server.kill()  # nothing is open any more, or its time is over
        return 0
    finally:
        server.stop()
    says.told("failed", "the server could not be started again")
    return 1


def _serve(keeper: Keeper, health: Health, says: Text | Json, options: argparse.Namespace) -> None:
    """Until the keeper gives up; Terminated when it was asked to end, and is drained."""
    server = keeper.server
    says.ready(server)
    try:
        keeper.wait()
    except Terminated:
        says.told("draining", "waiting for open turns")
        health.draining = keeper.draining = True
        if keeper.phase == "ready":
            drained = drain(server, options.settle_s, options.drain_s)
            says.told("drained", "drained" if drained else "not drained in time")
        raise


def drain(server: Server, settle_s: float, timeout_s: float) -> bool:
    """Have doors take no more turns, let those that are open end, and wait until no proxy sends any
    more; whether all of them have ended in time. A look at its figures that fails is no end."""
    began = time.monotonic()
    deadline = began + settle_s + timeout_s
    if server.doors:
        server.drain(timeout_s)
    drained = Drain(began, settle_s=settle_s, looks=round(QUIET_S / LOOK_EVERY_S))
    while server.alive and time.monotonic() < deadline:
        told = server.open_requests()
        count = None if told is None else sum(told.values())
        if drained.is_over(time.monotonic(), count):
            return True
        time.sleep(LOOK_EVERY_S)
    return False


def _terminate(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated
