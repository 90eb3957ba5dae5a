"""A whole turn on the real weights, every server group of a shipped plan in a pod, over TLS with
callers' certificates."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.kubernetes.groups import groups
from deploy.plan import Plan, find
from deploy.pod.placing import read
from deploy.pod.secret import AUTHORITY, CALLERS, CERTIFICATE, KEY
from loadtest.operate.pods import FRONT, running
from python_backends.remote_stage.resolved import named_stages
from tests.certificates import self_signed, signed

pytestmark = [pytest.mark.server, pytest.mark.full]

PLAN = "stages-apart"
ORDER = Path(__file__).parents[2] / "samples" / "order-1.wav"
DNS_S = 1.5
"""A proxy asks once a second."""

TLS = "\ntls: {certificate: server.pem, key: server.key, callers: callers.pem}\n"


def secret(folder: Path) -> Path:
    """As cert-manager makes it, with who signs callers; beside it a caller's own certificate."""
    made = folder / "secret"
    made.mkdir()
    for authority in ("issuer", "callers"):
        self_signed(folder, authority)
    signed(folder, "issuer", "server", "subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    signed(folder, "callers", "caller")
    files = {CERTIFICATE: "server.pem", KEY: "server.key"}
    for name, source in (files | {AUTHORITY: "issuer.pem", CALLERS: "callers.pem"}).items():
        (made / name).write_bytes((folder / source).read_bytes())
    return made


def turn(address: str, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "client", "turn", str(ORDER), "--out", str(folder / "a.wav")]
    command += ["--server", address, "--tls-ca", str(folder / "issuer.pem"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_pods_of_a_plan_answer_a_turn_over_tls_and_all_of_them_drain(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(find(PLAN).read_text() + TLS)
    plan = Plan.read(file)
    parts = {group.server: group for group in groups(plan, read(plan))}
    stages = {stage: where.name for stage, where in named_stages(parts[FRONT].placement).items()}
    with running(file, stages, ["--tls", str(secret(tmp_path))]) as pods:
        started = {server: pods.start(server) for server in parts}
        for pod in started.values():
            pod.wait_until_ready()
        pods.publish()
        time.sleep(DNS_S)
        address = started[FRONT].grpc_address
        assert turn(address, tmp_path).returncode != 0, "a caller without a certificate"
        shown = (
            "--tls-cert",
            str(tmp_path / "caller.pem"),
            "--tls-key",
            str(tmp_path / "caller.key"),
        )
        told = turn(address, tmp_path, *shown)
        assert told.returncode == 0, told.stderr
        assert "s of sound" in told.stdout
        for pod in started.values():
            pod.terminate()
        assert [pod.process.wait(60.0) for pod in started.values()] == [0] * len(parts)
        logs = [pod.log.read_text().splitlines() for pod in started.values()]
        assert all("drained" in log for log in logs)
