"""Ports, owners of runs, and what is cleaned up after them."""

import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from deploy import one_line, processes, runs
from deploy.errors import PortBusy
from deploy.processes import LOCALHOST, SHARED_MEMORY
from deploy.settings import Ports


def dead_owner(prefix: str) -> runs.Owner:
    """A process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return runs.Owner(ended.pid, 1, prefix)


def test_a_busy_port_is_refused_by_its_number_and_purpose() -> None:
    with socket.create_server((LOCALHOST, 0)) as taken:
        port = taken.getsockname()[1]
        http, metrics = processes.free_ports(2)
        with pytest.raises(PortBusy, match=rf"port {port} \(grpc\) is in use"):
            Ports(http, port, metrics).require_free()


def test_a_port_that_somebody_else_opened_to_the_world_is_busy() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        assert not processes.is_free(taken.getsockname()[1])


def test_free_ports_are_different_and_free() -> None:
    ports = processes.free_ports(20)
    assert len(set(ports)) == 20
    assert all(processes.is_free(port) for port in ports)


def test_a_process_is_known_by_its_start_and_gone_when_it_ended() -> None:
    assert processes.start_time(os.getpid()) == processes.start_time(os.getpid())
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    assert processes.start_time(zombie.pid) is None
    zombie.wait()
    assert processes.start_time(zombie.pid) is None


def test_only_servers_and_stubs_count_as_leftovers() -> None:
    words = ["tristage-test-prefix-7", "time.sleep(60)"]
    stranger = subprocess.Popen([sys.executable, "-c", f"import time; {words[1]}", words[0]])
    try:
        assert processes.end_leftovers(words[0]) == 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_every_run_has_a_prefix_and_a_folder_of_its_own(tmp_path: Path) -> None:
    """Public case F13."""
    one, other = runs.open_run(tmp_path), runs.open_run(tmp_path)
    assert one[0] != other[0]
    assert one[1] != other[1]
    assert runs.sweep(tmp_path) == []
    assert one[0].exists()


def test_a_run_whose_owner_is_gone_is_swept_with_its_shared_memory(tmp_path: Path) -> None:
    folder, prefix = runs.open_run(tmp_path)
    (folder / runs.RECORD).write_text(json.dumps(asdict(dead_owner(prefix))))
    region = SHARED_MEMORY / f"{prefix}region"
    region.write_bytes(b"")
    assert runs.sweep(tmp_path) == [folder.name]
    assert not folder.exists()
    assert not region.exists()


def test_a_pid_that_was_used_again_is_not_taken_for_the_owner(tmp_path: Path) -> None:
    folder, prefix = runs.open_run(tmp_path)
    started = processes.start_time(os.getpid())
    assert started is not None
    reused = runs.Owner(os.getpid(), started - 1, prefix)
    (folder / runs.RECORD).write_text(json.dumps(asdict(reused)))
    assert runs.sweep(tmp_path) == [folder.name]


def test_only_the_newest_logs_are_kept(tmp_path: Path) -> None:
    for number in range(runs.LOGS_KEPT + 5):
        path = runs.new_log(tmp_path, f"run-{number}")
        path.write_text("")
        os.utime(path, (number, number))
    kept = sorted((tmp_path / "logs").iterdir(), key=lambda path: path.stat().st_mtime)
    assert len(kept) == runs.LOGS_KEPT
    assert re.search(r"run-24\.log$", kept[-1].name)


def test_a_quiet_line_keeps_the_log_and_the_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "logs" / "install.log"
    speaks = [sys.executable, "-c", "print('collecting'); raise SystemExit(3)"]
    assert one_line.run("installing", log, speaks) == 3
    assert log.read_text() == "collecting\n"
    assert "failed with exit code 3" in capfd.readouterr().err
    assert one_line.run("installing", log, [sys.executable, "-c", "print('x')"]) == 0
    assert "x" not in capfd.readouterr().err.replace("exit", "")
