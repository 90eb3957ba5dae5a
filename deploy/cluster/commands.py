"""`python -m deploy plan|up|status|scale|down`: servers of a plan, from the command line."""

import argparse
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from deploy import figures, runs
from deploy.cluster.cluster import Cluster
from deploy.cluster.control import order
from deploy.cluster.files import ClusterState, ServerState, state_path
from deploy.cluster.tables import Look, plan_table, status_table
from deploy.cluster.told import telling
from deploy.errors import DeployError, PlanError, ServerFailed
from deploy.plan import Plan, PortsPlan, find
from deploy.plan_check import Machine, reasons
from deploy.progress import Line
from deploy.readiness import probing
from deploy.telling import add_log_format, environment
from python_backends.access import Access

DOWN_TIMEOUT_S = 60.0
WAIT_STEP_S = 0.05


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """The commands of a cluster beside those of one server."""
    file = {"nargs": "?", "metavar": "FILE", "help": "a plan, or the name of a shipped one"}
    for action in (plan, up, status, down):
        parser = commands.add_parser(action.__name__, help=(action.__doc__ or "").split("\n")[0])
        parser.set_defaults(action=action)
        parser.add_argument("file", **file)
        if action is up:
            parser.add_argument("--only", type=_names, help="servers of this machine: think,speak")
            ports = {
                "nargs": 3,
                "metavar": ("HTTP", "GRPC", "METRICS"),
                "help": "of the front",
            }
            parser.add_argument("--ports", type=int, **ports)
            add_log_format(parser)
    parser = commands.add_parser("scale", help=scale.__doc__)
    parser.set_defaults(action=scale)
    parser.add_argument("target", type=_target, metavar="STAGE=N", help="or SERVER=N")
    parser.add_argument("file", **file)


def plan(options: argparse.Namespace) -> int:
    """Say what would run where, and whether it can work."""
    console = Console()
    chosen = Plan.read(find(options.file))
    models = chosen.models_by_name()
    why_not = reasons(chosen, models, Machine())
    console.print(plan_table(chosen, models, works=not why_not))
    for reason in why_not or ["can work"]:
        console.print(reason, style="red" if why_not else "green", markup=False, highlight=False)
    return 1 if why_not else 0


def up(options: argparse.Namespace) -> int:
    """Start the servers of a plan and keep them alive, until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, _interrupt)
    chosen = Plan.read(find(options.file))
    if options.ports:
        chosen = _with_front_ports(chosen, *options.ports)
    os.environ.update(environment(options))  # of all its servers
    says = telling(options, _address_book)
    cluster = Cluster(
        chosen, only=options.only, out=options.out, progress=says.progress, hear=says.hear
    )
    try:
        with says.beside(cluster), cluster:
            says.ready(cluster)
            cluster.wait()
    except KeyboardInterrupt:
        says.stopped()
    return 0


def status(options: argparse.Namespace) -> int:
    """Ask the servers of what is up whether they answer, and what is open there."""
    found = _states(options)
    if not found:
        print("nothing is up")
    for name, state in found.items():
        with ThreadPoolExecutor(len(state.servers) or 1) as threads:
            looks = list(threads.map(_look, state.servers))
        names = [one.name for one in state.servers]
        Console().print(status_table(name, state, dict(zip(names, looks, strict=True))))
    return 0 if found and all(state.alive for state in found.values()) else 1


def scale(options: argparse.Namespace) -> int:
    """Have so many replicas of a stage or server, while it serves."""
    state = _running(options)
    line = Line()
    for text in order(Path(state.control), *options.target):
        line(text)
    what, count = options.target
    print(f"{what}: {count}")
    return 0


def down(options: argparse.Namespace) -> int:
    """End what is up."""
    found = _states(options)
    for state in found.values():
        if state.alive:
            with suppress(ProcessLookupError):
                os.kill(state.pid, signal.SIGTERM)
    deadline = time.monotonic() + DOWN_TIMEOUT_S
    for name, state in found.items():
        while state.alive:
            if time.monotonic() > deadline:
                raise ServerFailed(f"{name} (process {state.pid}) has not ended")
            time.sleep(WAIT_STEP_S)
        state_path(options.out, name).unlink(missing_ok=True)
        print(f"{name} is down")
    runs.sweep(options.out)
    if not found:
        print("nothing is up")
    return 0


def _states(options: argparse.Namespace) -> dict[str, ClusterState]:
    """By name: of the plan that was named, or everything that is known."""
    name = find(options.file).stem if options.file else "*"
    folder = state_path(options.out, "x").parent
    paths = [path for pattern in (name, f"{name}@*") for path in folder.glob(f"{pattern}.json")]
    return {path.stem: ClusterState.read(path) for path in sorted(set(paths))}


def _running(options: argparse.Namespace) -> ClusterState:
    alive = {name: state for name, state in _states(options).items() if state.alive}
    if len(alive) != 1:
        known = f"several are up, name one: {', '.join(alive)}" if alive else "nothing is up"
        raise DeployError(known)
    return next(iter(alive.values()))


def _look(one: ServerState) -> Look:
    """What a server says now; asked for two seconds at most."""
    with probing(one.grpc, Access(**one.tls)) as probe:
        if not probe.server_is_live():
            return Look()
        ready = probe.server_is_ready()
    try:
        return Look(True, ready, figures.open_requests(figures.read_metrics(one.metrics)))
    except ServerFailed:
        return Look(True, ready)


def _with_front_ports(plan: Plan, http: int, grpc: int, metrics: int) -> Plan:
    if plan.front not in plan.servers:
        raise PlanError(f"front: no server {plan.front!r}; servers: {', '.join(plan.servers)}")
    ports = PortsPlan(http=http, grpc=grpc, metrics=metrics)
    front = plan.servers[plan.front].model_copy(update={"ports": ports})
    return plan.model_copy(update={"servers": {**plan.servers, plan.front: front}})


def _address_book(cluster: Cluster) -> str:
    lines = [
        f"{one.name:12} {one.grpc:22} {', '.join(one.stages)}" for one in cluster.state.servers
    ]
    with suppress(DeployError):
        front = cluster.front
        lines = [
            f"gRPC     {front.grpc_address}\nHTTP     http://{front.http_address}",
            f"metrics  http://{front.metrics_address}/metrics\n",
            *lines,
        ]
    return "\n".join([*lines, "\npython -m deploy status | scale STAGE=N | down\nCtrl-C stops it."])


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _target(text: str) -> tuple[str, int]:
    stage, _, count = text.partition("=")
    if not stage or not count.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not STAGE=N")
    return stage, int(count)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
