"""Stages on two hosts: two network namespaces, joined by a wire that is slow, lossy, or cut.

Each host runs `python -m deploy up --only ...` of the same plan, as two machines would, and the one
on the right has a clock of its own (a time namespace), as another machine has.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

import grpc
import numpy as np
import yaml  # type: ignore[import-untyped]
from rich.progress import Progress
from tritonclient.grpc import service_pb2_grpc

from loadtest.apart.stand import MODEL, PLANS, emulating
from loadtest.apart.wire import Host, Link
from loadtest.load.reading import Reading
from python_backends import wire
from python_backends.errors import StageError

ROOT = Path(__file__).parents[2]
FIRST_PORT = 21_000
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
TURN_TIMEOUT_S = 20.0
TURNS, PEOPLE = 6, 4
DELAY_MS = 10.0
LOSS = 0.02
CLOCK_AHEAD_S = 1000
PAUSE_S = 0.25
_numbers = count()


@dataclass(frozen=True)
class End:
    """How a turn ended: its first sound, the error's code ("" for none), and when; and by how much
    a span lies before its sending or after its end."""

    first_audio_ms: float
    code: str
    at: float
    outside_ms: float


def two_hosts(runs: Path, progress: Progress) -> dict[str, float]:
    """Nothing where this machine cannot have network namespaces; that is said."""
    if reason := Link.possible():
        progress.console.print(f"two hosts: not measured, {reason}")
        return {}
    with (
        Link() as link,
        emulating(apart=["listen"]) as file,
        _deployed(link, file.parent) as address,
    ):
        found = _answered(address, "plain_link")
        link.set(delay_ms=DELAY_MS)
        found |= _answered(address, "slow_link")
        link.set(delay_ms=1.0, loss=LOSS)
        dropped = link.dropped
        found |= _answered(address, "lossy_link")
        found["lossy_link_packets_lost"] = link.dropped - dropped
        link.set(delay_ms=0.0, loss=0.0)
        return found | _cut_and_healed(link, address)


def _answered(address: str, name: str) -> dict[str, float]:
    """Some people, some turns each."""
    with ThreadPoolExecutor(PEOPLE) as threads:
        ends = list(threads.map(_speak, [address] * (TURNS * PEOPLE)))
    good = [end.first_audio_ms for end in ends if not end.code]
    return {
        f"{name}_answered_share": len(good) / len(ends),
        f"{name}_first_audio_ms_p50": median(good) if good else float("inf"),
        f"{name}_spans_outside_turn_ms": max(end.outside_ms for end in ends),
    }


def _cut_and_healed(link: Link, address: str) -> dict[str, float]:
    """Nothing tells the front of the cut: it has to notice by itself."""
    with ThreadPoolExecutor(PEOPLE) as threads:
        turns = [threads.submit(_speak, address) for _ in range(PEOPLE)]
        time.sleep(PAUSE_S)
        cut_at = time.monotonic()
        link.cut()
        ends = [turn.result() for turn in turns]
    link.heal()
    healed_at = time.monotonic()
    while (end := _speak(address)).code and time.monotonic() - healed_at < START_TIMEOUT_S:
        time.sleep(PAUSE_S)
    return {
        "cut_link_noticed_s": max(end.at - cut_at for end in ends),
        "cut_link_failed_typed_share": sum(end.code == "STAGE_FAILED" for end in ends) / len(ends),
        "healed_link_answered": float(not end.code),
        "healed_link_back_s": time.monotonic() - healed_at,
    }


def _speak(address: str) -> End:
    """One turn, read to its end."""
    turn = f"hosts-{os.getpid()}-{next(_numbers)}"
    sound = {"AUDIO": np.zeros((1, 16), np.float32)}
    request = wire.to_request(MODEL, sound, turn=turn, parameters={})
    reading, sent_ns, code = Reading(turn, emulated=True), time.monotonic_ns(), ""
    with grpc.insecure_channel(address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            for message in stub.ModelStreamInfer(iter([request]), timeout=TURN_TIMEOUT_S):
                reading.take(message, time.monotonic_ns())
            reading.close()
        except StageError as error:
            code = error.code if error.stage else f"untyped: {error.message}"
        except grpc.RpcError as fault:
            code = f"gRPC {fault.code().name}"
    first_ns = reading.chunks_ns[0] if reading.chunks_ns else sent_ns
    outside_ms = 0.0 if code else _outside_ms(reading, sent_ns, time.monotonic_ns())
    return End((first_ns - sent_ns) / 1e6, code, time.monotonic(), outside_ms)


def _outside_ms(reading: Reading, sent_ns: int, end_ns: int) -> float:
    spans = reading.events()
    early_ns = max(sent_ns - span["start_ns"] for span in spans)
    late_ns = max(span["end_ns"] - end_ns for span in spans)
    return float(max(0, early_ns, late_ns)) / 1e6


@contextmanager
def _deployed(link: Link, folder: Path) -> Iterator[str]:
    """listen, the front, on the left; think and speak on the right. The front's address, as it is
    reached past the wire."""
    plan, front = _plan(folder, link.left, link.right)
    with ExitStack() as stack:
        other = ["unshare", "--time", "--monotonic", str(CLOCK_AHEAD_S)]
        for host, servers, clock in ((link.right, "think,speak", other), (link.left, "listen", [])):
            stack.enter_context(_up(host, plan, servers, folder, clock))
        stack.enter_context(_route(link.left))
        address = f"{link.left.address}:{front}"
        _wait_until_served(address)
        yield address


def _plan(folder: Path, left: Host, right: Host) -> tuple[Path, int]:
    """plans/listen-front.yaml with the addresses of the two hosts; and the front's gRPC port."""
    given = yaml.safe_load((PLANS / "listen-front.yaml").read_text())
    given["repositories"] = [str(ROOT / "loadtest" / "emulated")]
    for number, (name, server) in enumerate(given["servers"].items()):
        first = FIRST_PORT + 10 * number
        server["host"] = (left if name == given["front"] else right).address
        server["ports"] = {"http": first, "grpc": first + 1, "metrics": first + 2}
    path = folder / "two-hosts.yaml"
    path.write_text(yaml.safe_dump(given))
    return path, int(given["servers"][given["front"]]["ports"]["grpc"])


@contextmanager
def _up(host: Host, plan: Path, servers: str, folder: Path, clock: Sequence[str]) -> Iterator[None]:
    """`python -m deploy up` on a host, in a folder of its own; `clock` gives it another one."""
    out = folder / servers.replace(",", "-")
    command = [sys.executable, "-m", "deploy", "--out", str(out), "up", str(plan)]
    out.mkdir()
    with (out / "up.log").open("wb") as log:
        process = subprocess.Popen(
            host.command([*clock, *command, "--only", servers]),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _route(host: Host) -> Iterator[None]:
    """This namespace reaches the host's address on the wire, past the wire."""
    route: Mapping[str, list[str]] = {
        verb: ["ip", "route", verb, f"{host.address}/32", "via", host.outside_address]
        for verb in ("replace", "del")
    }
    subprocess.run(route["replace"], check=True)
    try:
        yield
    finally:
        subprocess.run(route["del"], check=False)


def _wait_until_served(address: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while (end := _speak(address)).code:
        if time.monotonic() > deadline:
            raise RuntimeError(f"two hosts: nothing is served at {address}: {end.code}")
        time.sleep(PAUSE_S)
