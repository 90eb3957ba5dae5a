"""A server's log stays short while the server writes it, and whoever follows it goes on."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy import runs
from deploy.json_log import MISSING, following
from deploy.keeper import keeping
from deploy.server_log import MOST_BYTES, ServerLog, Tail, earlier
from deploy.settings import Settings
from deploy.spawner import spawn
from tests import fakes
from tests.unit.cluster_world import StandServer

MOST = 20_000
LINES = 6_000
WRITER = f"""
import json, os, time
for number in range({LINES}):
    told = json.dumps(json.dumps(dict(event="turn_failed", message="gone", turn=f"t-{{number}}")))
    os.write(1 + number % 2, f"I0101 00:00:01.000001 7 a.cc:1] {{told}}\\n".encode())
    if number % 50 == 0:
        time.sleep(0.005)
    if number == {LINES} - 2:
        while os.fstat(1).st_size > {MOST}:
            time.sleep(0.001)  # what is written last is not in a cut
os.write(1, b'I0101 00:00:01.000001 7 a.cc:1] "the e')
os.write(1, b'nd"')
"""


class Server:
    def __init__(self, path: Path) -> None:
        self.log = ServerLog(path)
        self.alive = True


def until(so: Callable[[], object]) -> None:
    deadline = time.monotonic() + fakes.WAIT_S
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_log_is_bounded_while_a_process_writes_it_and_is_told_in_whole_lines(
    tmp_path: Path,
) -> None:
    """Some lines may be lost at a cut; none is told twice, broken, or out of order."""
    server, found = Server(tmp_path / "server-1.log"), list[dict[str, Any]]()
    process = spawn([sys.executable, "-c", WRITER], os.environ, server.log.path)
    with following(server, found.append):
        while process.poll() is None:
            server.log.bound(MOST)
            time.sleep(0.002)
    assert process.returncode == 0
    assert server.log.cuts > 3
    server.log.bound(MOST)
    assert server.log.path.stat().st_size <= MOST
    assert earlier(server.log.path).stat().st_size <= 2 * MOST + (1 << 20)
    *failed, last = [one for one in found if one["message"] != MISSING]
    assert last["message"] == "the end"
    numbers = [int(one["turn"].removeprefix("t-")) for one in failed]
    assert numbers == sorted(set(numbers))
    assert {(one["process"], one["message"]) for one in failed} == {("stage", "gone")}
    assert numbers[-1] == LINES - 1


def lines(first: int, last: int) -> str:
    return "".join(f"line {number}\n" for number in range(first, last))


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def read(tail: Tail) -> tuple[str, bool]:
    pieces = []
    missing = False
    while True:
        piece, misses = tail.read()
        missing |= misses
        if not piece:
            return b"".join(pieces).decode(), missing
        pieces.append(piece)


def test_whoever_follows_a_log_reads_everything_over_a_cut(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "server-1.log")
    append(log.path, lines(0, 100))
    tail = Tail(log)
    assert read(tail) == (lines(0, 100), False)
    append(log.path, lines(100, 200))
    assert not log.bound(MOST)
    assert log.bound(1000)
    assert log.path.stat().st_size == 0
    append(log.path, lines(200, 300))
    assert read(tail) == (lines(100, 300), False)
    assert read(Tail(log)) == (lines(200, 300), False)


def test_the_part_that_is_kept_is_the_last_one_and_begins_with_a_line(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "server-1.log")
    append(log.path, lines(0, 1000))
    log.bound(500)
    kept = earlier(log.path).read_text()
    assert lines(0, 1000).endswith("\n" + kept)
    assert 480 < len(kept) <= 500


@pytest.mark.parametrize("cuts", [1, 2])
def test_who_reads_too_late_hears_that_lines_are_missing(tmp_path: Path, cuts: int) -> None:
    log = ServerLog(tmp_path / "server-1.log")
    tail = Tail(log)
    for cut in range(cuts):
        append(log.path, lines(cut * 1000, cut * 1000 + 1000))
        log.bound(2000)
    append(log.path, "new\n")
    text, missing = read(tail)
    assert missing
    assert text == earlier(log.path).read_text() + "new\n"
    assert read(tail) == ("", False)


def test_a_log_that_cannot_be_copied_is_cut_all_the_same(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "server-1.log")
    tail = Tail(log)
    append(log.path, lines(0, 100))
    full = Path("/dev/full")
    earlier(log.path).symlink_to(full)
    assert log.bound(100)
    append(log.path, "new\n")
    assert log.text() == "new\n"
    assert read(tail) == ("new\n", True)
    assert full.exists()


def test_a_log_that_is_gone_is_let_be(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "server-1.log")
    assert not log.bound()
    assert read(Tail(log)) == ("", False)


def test_a_kept_server_has_its_log_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerLog.bound, "__defaults__", (100,))
    server: Any = StandServer(Settings(out=tmp_path), print)
    server.log = ServerLog(tmp_path / "server-1.log")
    append(server.log.path, lines(0, 100))
    server.start()
    with keeping(server, lambda kind, what: None):
        until(lambda: server.log.cuts)
    assert server.log.text() == ""


def test_logs_of_ended_servers_are_bounded_together_and_a_running_ones_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LOGS_BYTES", 100)
    folder, prefix = runs.open_run(tmp_path)
    running = runs.new_log(tmp_path, folder.name)
    append(running, "x" * 1000)
    os.utime(running, (1, 1))
    for number in range(4):
        path = runs.new_log(tmp_path, f"run-{number}")
        append(path, "x" * 20)
        append(earlier(path), "x" * 20)
        os.utime(path, (number + 2, number + 2))
    runs.new_log(tmp_path, "run-5")
    kept = {path.name.removesuffix(".1").split("-", 3)[3] for path in (tmp_path / "logs").iterdir()}
    assert kept == {f"{folder.name}.log", "run-2.log", "run-3.log"}
    runs.close_run(folder, prefix)
    runs.new_log(tmp_path, "run-6")
    assert not running.exists()


def test_a_pod_has_room_for_all_its_logs() -> None:
    source = (Path(runs.__file__).parent / "kubernetes" / "pods.py").read_text()
    (room,) = [line for line in source.splitlines() if '"run", "emptyDir"' in line]
    assert json.loads(room.split('"sizeLimit": ')[1].split("}")[0]) == "768Mi"
    assert 3 * MOST_BYTES + runs.LOGS_BYTES < 768 << 20
