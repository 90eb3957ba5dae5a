"""Pods of a plan as processes of this machine: each on a loopback address of its own, replicas
behind a name of a real DNS server. No cluster, no kubelet: whoever uses it plays their part.
"""

import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from deploy import runs
from deploy.command import leashed
from deploy.kubernetes.groups import name_of
from deploy.pod.health import READY
from deploy.processes import LOCALHOST, free_ports
from deploy.settings import Ports, Settings
from deploy.spawner import spawn
from loadtest.apart.stand import emulating
from loadtest.device import ENVIRONMENT, Emulation, create
from loadtest.operate.names import Names, naming
from python_backends.remote_stage import resolved

PLAN: Final = Path(__file__).parent / "plans" / "think-apart.yaml"
FRONT, THINK = "front", "think"
NAME: Final = name_of(THINK)
STAGES: Final = {"emu_think": NAME}
"""Of PLAN: stage -> the name that its replicas stand behind."""

SETTLE_S: Final = 3.0
"""Records live one second here, and proxies ask every second."""

START_S: Final = 60.0
POLL_S: Final = 0.05


@dataclass
class Pod:
    """One process, and where it listens."""

    group: str
    host: str
    ports: Ports
    health_port: int
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def grpc_address(self) -> str:
        return f"{self.host}:{self.ports.grpc}"

    @property
    def metrics_address(self) -> str:
        return f"{self.host}:{self.ports.metrics}"

    def probe(self, path: str = READY) -> tuple[int, str]:
        """The status and the body that a probe is answered with; 0 where nobody answers."""
        try:
            url = f"http://{self.host}:{self.health_port}{path}"
            with urllib.request.urlopen(url, timeout=1.0) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()
        except OSError as fault:
            return 0, str(fault)

    @property
    def is_ready(self) -> bool:
        return self.probe()[0] == 200

    def wait_until_ready(self) -> None:
        """RuntimeError with the end of its log when it does not become ready."""
        deadline = time.monotonic() + START_S
        while not self.is_ready:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.group} at {self.host}: {self.log.read_text()[-2000:]}")
            time.sleep(POLL_S)

    def terminate(self) -> None:
        """As a kubelet begins to end it."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """As a node ends: the process and everything of it, at once."""
        self.process.kill()
        self.process.wait()


class Pods:
    """All of them; `names` is the DNS server that they ask. See `running`."""

    def __init__(
        self,
        names: Names,
        emulation: Path,
        plan: str | Path,
        stages: Mapping[str, str],
        words: Sequence[str],
    ) -> None:
        self.names = names
        self._emulation = emulation
        self._plan = plan
        self._stages = stages
        self._words = words
        self._ports = Ports(*free_ports(3))
        self._health_port = free_ports(1, vars(self._ports).values())[0]
        self._net = f"127.{random.SystemRandom().randrange(10, 250)}.0"
        self._all: list[Pod] = []
        self._devices: list[Path] = []

    def start(self, group: str) -> Pod:
        """One more pod of a group. A pod of think has an emulated device of its own."""
        number = len(self._all) + 1
        host = LOCALHOST if group == FRONT else f"{self._net}.{number}"
        out = self._emulation.parent / f"pod-{number}"
        out.mkdir()
        words = [sys.executable, "-m", "deploy", "--out", str(out), "pod", group, str(self._plan)]
        words += ["--host", host, "--ports", *map(str, vars(self._ports).values())]
        words += ["--health-port", str(self._health_port), "--settle-s", str(SETTLE_S)]
        words += self._words
        log = out / "pod.log"
        process = spawn(leashed(words, Settings()), self._environment(number), log)
        pod = Pod(group, host, self._ports, self._health_port, process, log)
        self._all.append(pod)
        return pod

    def publish(self) -> None:
        """What the control plane does: the name of each group stands for its ready pods."""
        for group in {pod.group for pod in self._all}:
            name = name_of(group)
            ready = [pod.host for pod in self._all if pod.group == group and pod.is_ready]
            if set(ready) != set(self.names.addresses(name)):
                self.names.put(name, *ready)

    def close(self) -> None:
        """End what is left, and clean up after pods that were killed."""
        for pod in self._all:
            if pod.process.poll() is None:
                pod.kill()
            runs.sweep(pod.log.parent)
        for device in self._devices:
            device.unlink(missing_ok=True)

    def _environment(self, number: int) -> Mapping[str, str]:
        own = Emulation.read(self._emulation)
        device = Path(f"{own.devices['think']}-{number}")
        create(device)
        self._devices.append(device)
        file = self._emulation.with_name(f"pod-{number}.json")
        replace(own, devices={**own.devices, "think": str(device)}).write(file)
        return {
            **os.environ,
            ENVIRONMENT: str(file),
            resolved.VARIABLE: " ".join(
                f"{stage}={name}:{self._ports.grpc}" for stage, name in self._stages.items()
            ),
            resolved.SERVER_VARIABLE: self.names.address,
        }


@contextmanager
def running(
    plan: str | Path = PLAN, stages: Mapping[str, str] = STAGES, words: Sequence[str] = ()
) -> Iterator[Pods]:
    """Of a plan, `stages` of which are behind names; `words`: more of each pod's command. Nothing
    is started yet; all of it ends with the block."""
    with emulating() as file, naming() as names:
        for name in stages.values():
            names.put(name)
        pods = Pods(names, file, plan, stages, words)
        try:
            yield pods
        finally:
            pods.close()
