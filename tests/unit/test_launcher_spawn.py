"""How a server is started: its command, its environment, its leash, its cores."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from deploy import leash
from deploy.backends import ROOT, environment
from deploy.command import leashed, server_command
from deploy.processes import is_local, start_time
from deploy.settings import Ports, Settings
from deploy.spawner import spawn

PATIENCE_S = 10.0
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
ORPHANS = """
import sys, threading
from pathlib import Path
from deploy.command import leashed
from deploy.settings import Settings
from deploy.spawner import spawn
def start():
    command = leashed([sys.executable, "-c", "import time; time.sleep(60)"], Settings())
    print(spawn(command, {}, Path("/dev/null")).pid, flush=True)
thread = threading.Thread(target=start)
thread.start()
thread.join()
sys.stdin.read()
"""


def until_gone(pid: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while start_time(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    return start_time(pid) is None


def test_a_server_listens_on_its_own_host_and_serves_what_it_was_given(tmp_path: Path) -> None:
    settings = Settings(host="127.0.0.2", arguments=["--log-verbose=1"], exit_timeout_s=2)
    ports = Ports(1, 2, 3)
    command = server_command(settings, ports, ["a", "b"], [tmp_path], tmp_path, tmp_path, "p-", "")
    assert {"--grpc-address=127.0.0.2", "--grpc-port=2", "--metrics-port=3"} <= set(command)
    assert {"--load-model=a", "--load-model=b", "--exit-timeout-secs=2"} <= set(command)
    assert command[-1] == "--log-verbose=1"


def test_what_a_plan_puts_into_the_environment_wins() -> None:
    given = {"OMP_NUM_THREADS": "4", "TRISTAGE_BOARD": "/dev/shm/shared"}
    found = environment({"OMP_NUM_THREADS": "2", "HOME": "/h"}, "127.0.0.1:1", "p-", given)
    assert (found["OMP_NUM_THREADS"], found["TRISTAGE_BOARD"]) == ("4", "/dev/shm/shared")
    assert (found["HOME"], found["TRISTAGE_GRPC"]) == ("/h", "127.0.0.1:1")
    alone = environment({}, "a:1", "p-", {})
    assert (alone["TRISTAGE_BOARD"], alone["TRISTAGE_SHM_PREFIX"]) == ("/dev/shm/p-board", "p-")


def test_a_server_keeps_to_the_cores_it_was_given() -> None:
    core = max(os.sched_getaffinity(0))
    show = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
    for settings, seen in (
        (Settings(cores=(core,)), [core]),
        (Settings(), sorted(os.sched_getaffinity(0))),
    ):
        answer = subprocess.run(leashed(show, settings), capture_output=True, text=True, check=True)
        assert answer.stdout.strip() == str(seen)
    assert Path(str(leash.__file__)).name in leashed(show, Settings())[3]


def test_a_process_outlives_the_thread_that_asked_for_it() -> None:
    started: list[subprocess.Popen[bytes]] = []
    command = leashed(SLEEP, Settings())
    thread = threading.Thread(target=lambda: started.append(spawn(command, {}, Path(os.devnull))))
    thread.start()
    thread.join()
    (process,) = started
    try:
        time.sleep(0.2)  # the leash takes hold once its interpreter has started
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_process_started_by_a_thread_ends_with_the_one_that_started_it() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHANS], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert start_time(child) is not None
    time.sleep(0.2)
    parent.kill()
    parent.communicate()
    assert until_gone(child)


def test_only_addresses_of_this_machine_are_local() -> None:
    assert is_local("127.0.0.1")
    assert is_local("localhost")
    assert not is_local("203.0.113.7")
