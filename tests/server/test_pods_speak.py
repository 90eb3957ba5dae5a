"""A whole turn on the real weights, every server group of a shipped plan in a pod, over TLS."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.kubernetes.groups import groups
from deploy.plan import Plan, find
from deploy.pod.placing import read
from deploy.pod.secret import CERTIFICATE, KEY
from loadtest.operate.pods import FRONT, running
from python_backends.remote_stage.resolved import named_stages
from tests.certificates import self_signed

pytestmark = [pytest.mark.server, pytest.mark.full]

PLAN = "stages-apart"
ORDER = Path(__file__).parents[2] / "samples" / "order-1.wav"
DNS_S = 1.5
"""A proxy asks once a second."""


def test_pods_of_a_plan_answer_a_turn_over_tls_and_all_of_them_drain(tmp_path: Path) -> None:
    pem = self_signed(tmp_path, "server")
    pem.rename(tmp_path / CERTIFICATE)
    (tmp_path / "server.key").rename(tmp_path / KEY)
    plan = Plan.read(find(PLAN))
    parts = {group.server: group for group in groups(plan, read(plan))}
    stages = {stage: where.name for stage, where in named_stages(parts[FRONT].placement).items()}
    with running(PLAN, stages, ["--tls", str(tmp_path)]) as pods:
        started = {server: pods.start(server) for server in parts}
        for pod in started.values():
            pod.wait_until_ready()
        pods.publish()
        time.sleep(DNS_S)
        words = [
            sys.executable,
            "-m",
            "client",
            "turn",
            str(ORDER),
            "--out",
            str(tmp_path / "a.wav"),
        ]
        words += ["--server", started[FRONT].grpc_address, "--tls-ca", str(tmp_path / CERTIFICATE)]
        told = subprocess.run(words, capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr
        assert "s of sound" in told.stdout
        for pod in started.values():
            pod.terminate()
        assert [pod.process.wait(60.0) for pod in started.values()] == [0] * len(parts)
        logs = [pod.log.read_text().splitlines() for pod in started.values()]
        assert all("drained" in log for log in logs)
