"""Stubs that die or fall silent inside a server that lives. The stubs are real processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.errors import ServerFailed
from deploy.stubs import stubs, wait_for_an_end
from deploy.watchdog import RELOADS, REST_S, WITHIN_S, RestartBudget, Watchdog
from python_backends.siblings import STUB

Started = subprocess.Popen[bytes]
PATIENCE_S = 10.0
SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[dict[str, Started]]:
    """A stub for `mimic` and one for `mimic_step`, started by this process."""
    program = tmp_path / STUB.decode()
    program.symlink_to(sys.executable)
    started = {
        model: subprocess.Popen([program, "-I", "-S", "-c", SLEEP, "/shm", f"{model}_0_0"])
        for model in ("mimic", "mimic_step")
    }
    deadline = time.monotonic() + PATIENCE_S
    while len(stubs(os.getpid(), Server.models)) < 2:  # their command lines appear a little later
        assert time.monotonic() < deadline
    yield started
    for process in started.values():
        process.kill()
        process.wait()


class Server:
    models = ("mimic", "mimic_step", "voice_turn")
    own_queues = ("mimic",)
    pid = os.getpid()
    changing = threading.RLock()

    def config(self, model: str) -> str:
        return model


class Probe:
    """A server that answers, unless it is told otherwise."""

    def __init__(self) -> None:
        self.live = self.answers = self.ready = True
        self.refuses = False
        self.asked: list[Any] = []
        self.reloaded: list[str] = []
        self.misses = 0
        self.answer = "model 'mimic' gave no answer: Deadline Exceeded"

    def infer(self, config: Any, timeout_s: float) -> None:
        self.asked.append(config)
        self.misses -= 1
        if not self.answers or self.misses >= 0:
            raise ServerFailed(self.answer)

    def model_is_ready(self, name: str) -> bool:
        return self.ready

    def server_is_live(self, timeout_s: float) -> bool:
        return self.live

    def reload(self, model: str) -> None:
        if self.refuses:
            raise ServerFailed(f"model {model!r} was not reloaded")
        self.reloaded.append(model)
        self.answers = True


class Watched:
    """A watchdog in fake time, and what it told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.probe = Probe()
        self.told: list[tuple[str, str]] = []
        server: Any = Server()
        probe: Any = self.probe
        tell = lambda kind, what: self.told.append((kind, what))  # noqa: E731
        self.watchdog = Watchdog(server, probe, tell, lambda: self.now)

    def look(self, now: float) -> None:
        self.now = now
        self.watchdog.look()


def ended(process: Started) -> None:
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_stubs_are_known_by_the_model_they_serve(running: dict[str, Started]) -> None:
    found = {stub.model: stub.pid for stub in stubs(os.getpid(), Server.models)}
    assert found == {model: process.pid for model, process in running.items()}


def test_a_model_whose_stub_has_died_is_loaded_again(running: dict[str, Started]) -> None:
    watched = Watched()
    watched.look(0.1)
    assert watched.probe.reloaded == []
    ended(running["mimic_step"])
    watched.look(0.2)
    assert watched.probe.reloaded == ["mimic_step"]
    assert [kind for kind, _ in watched.told] == ["lost", "reloaded"]
    assert watched.told[0][1] == "model 'mimic_step': its process has ended"
    watched.look(0.3)
    assert watched.probe.reloaded == ["mimic_step"]


def test_stages_are_asked_every_two_seconds(running: dict[str, Started]) -> None:
    watched = Watched()
    for now in (0.5, 1.9, 2.0, 2.5, 3.9, 4.0):
        watched.look(now)
    assert watched.probe.asked == ["mimic", "mimic"]
    assert watched.told == []


def test_a_stub_that_hangs_is_killed_before_its_model_is_loaded_again(
    running: dict[str, Started],
) -> None:
    """Public case F3."""
    watched = Watched()
    running["mimic"].send_signal(signal.SIGSTOP)
    watched.probe.answers = False
    watched.look(2.0)
    assert running["mimic"].wait(5.0) == -signal.SIGKILL
    assert running["mimic_step"].poll() is None
    assert watched.probe.reloaded == ["mimic"]
    assert "gave no answer" in watched.told[0][1]


def test_one_missed_answer_is_no_proof(running: dict[str, Started]) -> None:
    watched = Watched()
    watched.probe.misses = 1
    watched.look(2.0)
    assert watched.probe.asked == ["mimic", "mimic"]
    assert watched.probe.reloaded == []
    assert running["mimic"].poll() is None


def test_a_model_that_somebody_loads_again_is_not_silent(running: dict[str, Started]) -> None:
    watched = Watched()
    watched.probe.misses = 2
    watched.probe.answer = "Request for unknown model: 'mimic' has no available versions"
    watched.look(2.0)
    assert watched.probe.reloaded == []
    assert running["mimic"].poll() is None


def test_a_model_that_somebody_else_unloads_or_loads_again_is_left_to_them(
    running: dict[str, Started], tmp_path: Path
) -> None:
    watched = Watched()
    watched.probe.ready = False
    ended(running["mimic_step"])
    watched.look(0.1)
    watched.probe.ready = True
    running["mimic_step"].wait()
    again = subprocess.Popen(
        [tmp_path / STUB.decode(), "-I", "-S", "-c", SLEEP, "/shm", "mimic_step_0_0"]
    )
    running["again"] = again
    deadline = time.monotonic() + PATIENCE_S
    while again.pid not in {one.pid for one in stubs(os.getpid(), Server.models)}:
        assert time.monotonic() < deadline
    watched.look(0.2)
    assert watched.probe.reloaded == []
    assert again.poll() is None
    ended(again)
    watched.look(0.3)
    assert watched.probe.reloaded == ["mimic_step"]


def test_a_model_that_could_not_be_loaded_again_is_tried_again(
    running: dict[str, Started],
) -> None:
    watched = Watched()
    ended(running["mimic_step"])
    watched.probe.refuses = True
    with pytest.raises(ServerFailed, match="not reloaded"):
        watched.look(0.1)
    watched.probe.ready = watched.probe.refuses = False
    watched.look(0.2)
    assert watched.probe.reloaded == ["mimic_step"]


def test_stubs_of_a_server_that_is_gone_are_left_to_its_restart(
    running: dict[str, Started],
) -> None:
    watched = Watched()
    watched.probe.live = False
    ended(running["mimic"])
    watched.look(2.0)
    assert watched.probe.reloaded == []
    assert watched.told == []


def test_a_process_that_has_gone_has_no_stubs() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert stubs(gone.pid, Server.models) == []


def test_the_end_of_a_stub_is_noticed_at_once(running: dict[str, Started]) -> None:
    """Public case F3."""
    some = stubs(os.getpid(), Server.models)
    assert not wait_for_an_end(some, 0.01)
    threading.Timer(0.05, running["mimic"].kill).start()
    assert wait_for_an_end(some, PATIENCE_S)
    assert wait_for_an_end(some, 0.0)


def test_a_model_may_be_reloaded_so_often_and_then_rests() -> None:
    budget = RestartBudget()
    for number in range(RELOADS):
        assert budget.take("think", float(number))
    assert not budget.take("think", 20.0)
    assert budget.rests("think", 20.0 + REST_S - 0.1)
    assert budget.take("speak", 20.0)
    assert not budget.take("think", 20.0 + REST_S - 0.1)
    assert not budget.rests("think", 20.0 + REST_S)
    assert budget.take("think", 20.0 + REST_S)


def test_a_model_that_dies_now_and_then_is_always_brought_back() -> None:
    budget = RestartBudget()
    assert all(budget.take("think", k * WITHIN_S / RELOADS) for k in range(10 * RELOADS))


def test_a_model_that_is_left_alone_is_told_once_and_brought_back_later(
    running: dict[str, Started],
) -> None:
    watched = Watched()
    for _ in range(RELOADS):
        watched.watchdog._budget.take("mimic_step", 0.0)
    ended(running["mimic_step"])
    for now in (0.1, 0.2, 1.0):
        watched.look(now)
    assert [kind for kind, _ in watched.told] == ["lost", "failed"]
    watched.look(0.1 + REST_S)
    assert watched.probe.reloaded == ["mimic_step"]
