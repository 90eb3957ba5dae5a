"""`python -m loadtest.operate.practice`: an emulated server to practise docs/runbook.md on.

With `--fault` it has one of the runbook's faults. It computes nothing and is like `deploy serve` in
everything else: kept alive, and its stages can be upgraded. Ctrl-C ends it.
"""

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from deploy.keeper import keeping
from deploy.launcher import Server
from deploy.rolling.commands import obeying
from deploy.settings import OUT, Ports, Settings
from loadtest.apart.stand import emulating
from loadtest.chaos.caller import DOOR
from loadtest.chaos.stand import STAGES
from loadtest.device import Emulation
from loadtest.device.emulation import Delays
from loadtest.seed.experiment import EMULATED

PORTS: Final = (8000, 8001, 8002)


@dataclass(frozen=True)
class Fault:
    """What is wrong: delays of the emulated device, and parameters of models."""

    told: str
    delays: Delays = field(default_factory=Delays)
    overrides: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


FAULTS: Final[Mapping[str, Fault]] = {
    "none": Fault("nothing is wrong"),
    "compute": Fault("each step of think computes longer", Delays(think_step_ms=50.0)),
    "schedule": Fault("before each step of an AR stage the host is slow", Delays(step_gap_ms=12.0)),
    "slots": Fault("think has few places in its batch", overrides={"emu_think": {"slots": "2"}}),
    "gaps": Fault("each step of speak computes longer", Delays(speak_step_ms=110.0)),
    "few": Fault("few turns are let in", overrides={DOOR: {"max_turns": "8", "max_waiting": "4"}}),
}


@contextmanager
def practising(fault: Fault, ports: Ports | None, out: Path) -> Iterator[tuple[Server, Path]]:
    """The server, and its emulation file; all of it ends with the block."""
    with emulating() as file:
        replace(Emulation.read(file), delays=fault.delays).write(file)
        settings = Settings(
            repositories=[EMULATED],
            models=[DOOR],
            overrides=fault.overrides,
            ports=ports,
            out=out,
            exit_timeout_s=2,
        )
        with Server(settings) as server, keeping(server, _told), obeying(server, out):
            yield server, file


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    options = _parser().parse_args(arguments)
    over = threading.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, lambda *_: over.set())
    fault = FAULTS[options.fault]
    with practising(fault, Ports(*options.ports), options.out) as (server, file):
        print(f"{options.fault}: {fault.told}")
        print(f"gRPC     {server.grpc_address}\nmetrics  http://{server.metrics_address}/metrics")
        print(f"model    {DOOR}, before {', '.join(STAGES)}\nemulation {file}", flush=True)
        over.wait()
    return 0


def _told(kind: str, what: str) -> None:
    print(f"{kind}: {what}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.operate.practice", description=__doc__.splitlines()[0]
    )
    told = "; ".join(f"{name}: {fault.told}" for name, fault in FAULTS.items())
    parser.add_argument("--fault", choices=FAULTS, default="none", help=told)
    parser.add_argument(
        "--ports", type=int, nargs=3, default=PORTS, metavar=("HTTP", "GRPC", "METRICS")
    )
    parser.add_argument("--out", type=Path, default=OUT)
    return parser


if __name__ == "__main__":
    sys.exit(main())
