"""`python -m deploy serve`: one server in the foreground; `upgrade`, `rollback`, `versions` of its
stages. `plan`, `up`, `status`, `scale`, `down`: the servers of a plan. `pod`: one of them, for an
orchestrator; `kubernetes`: its manifests. `bytes`: what models declare and take. `sweep`: clean up.
"""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from deploy import runs, telling
from deploy.cluster import commands as cluster
from deploy.errors import DeployError, TlsUnfit
from deploy.keeper import keeping
from deploy.kubernetes import command as manifests
from deploy.launcher import Server
from deploy.plan_check import LOOPBACK
from deploy.pod import command as pods
from deploy.processes import LOCALHOST
from deploy.progress import Line
from deploy.reconcile import LEAST, MOST, Row, as_they_are, table, under_load
from deploy.rolling import commands as rolling
from deploy.settings import OUT, Ports, Settings
from deploy.tls import Tls
from python_backends.front_door.traces import ENDPOINT
from python_backends.sizes import byte_count

EXAMPLE = """
    import numpy, queue
    from tritonclient.grpc import InferenceServerClient, InferInput

    sound = numpy.zeros((1, 16000), numpy.float32)            # 16 kHz mono, -1 to 1
    audio = InferInput("AUDIO", list(sound.shape), "FP32")
    audio.set_data_from_numpy(sound)
    answers = queue.Queue()
    client = InferenceServerClient("{grpc}"{secure})
    client.start_stream(lambda result, error: answers.put(error or result.as_numpy("SPEECH")))
    client.async_stream_infer("turn", [audio], request_id="turn-1")
    print(answers.get())                                      # 24 kHz mono, piece by piece
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of the command line."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.action(options))
    except DeployError as failure:
        telling.failure(options, str(failure))
        return 1


TABLE_WIDTH = 110
"""Columns, where there is no terminal to ask."""


ATTEMPTS = 5
"""Of starting the server again, one after another, before `serve` gives up."""


class _Terminated(Exception):
    """SIGTERM has come."""


def serve(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C, or SIGTERM, which lets open turns end first; 1 when the server has ended
    by itself and cannot be started again."""
    signal.signal(signal.SIGTERM, _terminate)
    says = telling.telling(options, _address_book)
    try:
        server = Server(_settings(options), says.progress)
        with (
            says.beside(server),
            server,
            keeping(server, says.told, attempts=ATTEMPTS) as keeper,
            rolling.obeying(server, options.out),
        ):
            says.ready(server)
            try:
                keeper.wait()
            except _Terminated:
                keeper.draining = True
                says.told("draining", "no more turns are taken; waiting for those that are open")
                if keeper.phase == "ready":
                    server.drain(options.drain_s)
                raise
            says.told("failed", "the server could not be started again")
            return 1
    except (KeyboardInterrupt, _Terminated):
        says.told("stopped", "stopped")
        return 0


def bytes_(options: argparse.Namespace) -> int:
    """What each model declares beside what its process takes: of a server that is started for it
    and given the largest requests, or of those that run."""
    found = as_they_are(options.out) if options.running else {"under load": _loaded(options)}
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    for name, rows in found.items():
        print(f"{name}:")
        console.print(table(rows))
    if options.json:
        told = {name: {row.name: row.as_json() for row in rows} for name, rows in found.items()}
        options.json.write_text(json.dumps(told, indent=2))
    wrong = [row.name for rows in found.values() for row in rows if not row.fits]
    if wrong:
        print(f"measured / declared is not {LEAST} to {MOST}: {', '.join(wrong)}", file=sys.stderr)
    if not found:
        print("no server runs", file=sys.stderr)
    return 0 if found and not wrong else 1


def _loaded(options: argparse.Namespace) -> list[Row]:
    with Server(_settings(options), Line()) as server:
        return under_load(server)


def sweep(options: argparse.Namespace) -> int:
    """Remove what killed launchers left behind."""
    swept = runs.sweep(options.out)
    print(f"cleaned up after {', '.join(swept)}" if swept else "nothing was left behind")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, help="where runs and logs are kept")
    commands = parser.add_subparsers(required=True)
    server = commands.add_parser("serve", help="start the server, stop it with Ctrl-C")
    server.set_defaults(action=serve)
    _add_models(server)
    server.add_argument("--ports", type=int, nargs=3, metavar=("HTTP", "GRPC", "METRICS"))
    server.add_argument("--host", default=LOCALHOST, help="address to listen on (%(default)s)")
    server.add_argument("--tls-cert", type=Path, help="gRPC over TLS: the certificate (PEM)")
    server.add_argument("--tls-key", type=Path, help="and its key (PEM)")
    server.add_argument("--tls-ca", type=Path, help="let in only callers it has signed (PEM)")
    telling.add_log_format(server)
    server.add_argument(
        "--otlp-endpoint",
        metavar="URL",
        help="send every turn's trace to a collector: http://HOST:4318/v1/traces",
    )
    server.add_argument(
        "--drain-s", type=float, default=10.0, help="what SIGTERM gives open turns (10)"
    )
    declared = commands.add_parser("bytes", help="what models declare, and what they take")
    declared.set_defaults(action=bytes_, **NO_ADDRESS)
    _add_models(declared)
    declared.add_argument(
        "--running", action="store_true", help="of servers that run, as they are now"
    )
    declared.add_argument("--json", type=Path, help="write it to this file, too")
    cluster.add_to(commands)
    pods.add_to(commands)
    manifests.add_to(commands)
    rolling.add_to(commands)
    commands.add_parser("sweep", help=sweep.__doc__).set_defaults(action=sweep)
    return parser


NO_ADDRESS = {
    "ports": None,
    "host": LOCALHOST,
    "tls_cert": None,
    "tls_key": None,
    "tls_ca": None,
    "log_format": telling.TEXT,
    "otlp_endpoint": None,
}
"""Of a server that nobody else is to reach."""


def _add_models(parser: argparse.ArgumentParser) -> None:
    """What is served."""
    parser.add_argument(
        "--own",
        type=Path,
        action="append",
        default=[],
        metavar="REPOSITORY",
        help="its models replace ours of the same name: `python -m build think --from DIR`",
    )
    parser.add_argument("--model", action="append", help="only this one and what it calls")
    parser.add_argument(
        "--set", action="append", default=[], metavar="MODEL.PARAMETER=VALUE", type=_assignment
    )
    parser.add_argument("--config-name", help="take configs/<name>.pbtxt where there is one")
    parser.add_argument(
        "--bytes", type=_size, help="what its models may take: 2GiB; default: this machine's memory"
    )


def _assignment(text: str) -> tuple[str, str, str]:
    target, found, value = text.partition("=")
    model, dot, parameter = target.partition(".")
    if not (found and dot):
        raise argparse.ArgumentTypeError(f"{text!r} is not MODEL.PARAMETER=VALUE")
    return model, parameter, value


def _size(text: str) -> int:
    try:
        return byte_count(text)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(f"{text!r}: {fault}") from fault


def _settings(options: argparse.Namespace) -> Settings:
    overrides: dict[str, dict[str, str]] = {}
    for model, parameter, value in options.set:
        overrides.setdefault(model, {})[parameter] = value
    return Settings(
        own=tuple(options.own),
        models=options.model,
        overrides=overrides,
        ports=Ports(*options.ports) if options.ports else None,
        config_name=options.config_name,
        host=options.host,
        tls=_tls(options),
        bytes=options.bytes,
        environment=_told_by(options),
        out=options.out,
    )


def _told_by(options: argparse.Namespace) -> dict[str, str]:
    """Environment variables of the server, as to how it tells of itself."""
    found = telling.environment(options)
    if options.otlp_endpoint:
        found[ENDPOINT] = options.otlp_endpoint
    return found


def _tls(options: argparse.Namespace) -> Tls | None:
    pair = (options.tls_cert, options.tls_key)
    if all(pair):
        return Tls(*pair, options.tls_ca)
    if any((*pair, options.tls_ca)):
        raise TlsUnfit("TLS needs both --tls-cert and --tls-key")
    return None


def _address_book(server: Server) -> str:
    root = server.access.root
    secure = f', ssl=True, root_certificates="{root}"' if root else ""
    return (
        f"gRPC     {server.grpc_address}{_heard_by(server)}\nHTTP     http://{server.http_address}\n"
        f"metrics  http://{server.metrics_address}/metrics\nlog      {server.log.path}\n"
        f"models   {', '.join(server.models)}\n\nFrom Python:\n"
        f"{EXAMPLE.format(grpc=server.grpc_address, secure=secure)}\nCtrl-C stops it."
    )


def _heard_by(server: Server) -> str:
    """Who may hear what callers say, where that is not plain."""
    if server.access.root:
        return f"  TLS, as {server.access.name}"
    local = server.settings.host.startswith(LOOPBACK)
    return "" if local else "  in plaintext: anybody on the way can listen; see deploy/SAFETY.md"


def _terminate(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Terminated


if __name__ == "__main__":
    sys.exit(main())
