"""A deployment of emulated stages, supervised and told from the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2_grpc

from deploy.cluster import Cluster
from deploy.cluster.files import ClusterState, state_path
from deploy.stubs import stubs
from loadtest.apart.stand import MODEL, PLANS, emulating, plan_of
from loadtest.apart.transfer import ask
from python_backends import wire

pytestmark = [pytest.mark.server, pytest.mark.full]

PLAN = "listen-front"
PATIENCE_S = 30.0


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def speaks(address: str) -> bool:
    """A turn is answered with sound."""
    sound = {"AUDIO": np.zeros((1, 16), np.float32)}
    request = wire.to_request(MODEL, sound, turn=f"turn-{time.monotonic_ns()}", parameters={})
    with grpc.insecure_channel(address) as channel:
        try:
            answers = ask(service_pb2_grpc.GRPCInferenceServiceStub(channel), request)
        except RuntimeError as said:
            if "[tristage code=" not in str(said):
                raise
            return False
    return any(output.name == "SPEECH" for answer in answers for output in answer.outputs)


@pytest.fixture
def emulated() -> Iterator[Path]:
    with emulating() as file:
        yield file


def test_a_process_that_dies_or_hangs_inside_a_server_is_brought_back(emulated: Path) -> None:
    with Cluster(plan_of(PLAN), out=emulated.parent) as cluster:
        assert speaks(cluster.grpc_address)
        for number, sign in enumerate((signal.SIGKILL, signal.SIGSTOP), 1):
            [victim] = stubs(cluster.servers["think-1"].pid, ["emu_think"])
            os.kill(victim.pid, sign)
            until(lambda n=number: [e.kind for e in cluster.events].count("reloaded") == n)  # type: ignore[misc]
            until(lambda: speaks(cluster.grpc_address))
        assert {event.server for event in cluster.events if event.kind == "lost"} == {"think-1"}


def test_the_command_line_starts_scales_and_ends_a_deployment(emulated: Path) -> None:
    out = emulated.parent
    deploy = [sys.executable, "-m", "deploy", "--out", str(out)]
    plan = str(PLANS / f"{PLAN}.yaml")

    def told(*words: str) -> str:
        done = subprocess.run([*deploy, *words, plan], capture_output=True, text=True)
        return f"{done.returncode} {done.stdout}{done.stderr}"

    with (out / "up.log").open("wb") as log:
        up = subprocess.Popen([*deploy, "up", "--log-format", "json", plan], stdout=log)
    try:
        state = state_path(out, PLAN)
        until(lambda: state.exists() and "listen-1 (front)  ready" in told("status"))
        front = next(one for one in ClusterState.read(state).servers if one.server == "listen")
        assert speaks(front.grpc)
        assert told("scale", "emu_think=2").startswith("0 ")
        assert "think-2" in told("status")
        assert told("scale", "emu_think=1").startswith("0 ")
        assert "think-2" not in told("status")
        assert "give them a server of their own" in told("scale", "emu_listen=2")
        assert speaks(front.grpc)
        assert told("down").startswith("0 ")
        assert up.wait(PATIENCE_S) == 0
    finally:
        up.kill()
        up.wait()
    records = [json.loads(line) for line in (out / "up.log").read_text().splitlines()]
    assert {"listen-1", "think-1", "think-2"} <= {one.get("server") for one in records}
    assert {"progress", "serving", "added", "removed", "stopped"} <= {
        one.get("event") for one in records if one["process"] == "launcher"
    }
    assert "tritonserver" in {one["process"] for one in records}
