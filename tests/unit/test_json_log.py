"""A server's log as objects, one a line."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy.json_log import (
    MOST_AGE,
    MOST_CHARACTERS,
    MOST_LINES,
    JsonLog,
    Reader,
    following,
    following_all,
)
from deploy.server_log import ServerLog
from python_backends.bridge.log import log_failed_turn, log_fault
from python_backends.errors import InvalidInput, Overloaded, StageFailed
from python_backends.log_format import LOG_FORMAT
from tests import fakes

NOW = datetime(2027, 1, 1, 0, 5, tzinfo=UTC)
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def read(*lines: str) -> list[dict[str, object]]:
    reader = Reader(lambda: NOW)
    found = [*map(reader.take, lines), reader.flush()]
    return [one for one in found if one is not None]


def test_the_servers_lines_have_a_level_a_moment_and_a_plain_message() -> None:
    (one,) = read('W1231 23:59:58.123456 42 python_be.cc:22] "a \\"quoted\\" line\\nand another"')
    assert one == {
        "time": "2026-12-31T23:59:58.123456Z",
        "level": "warning",
        "process": "tritonserver",
        "pid": 42,
        "source": "python_be.cc:22",
        "message": 'a "quoted" line\nand another',
    }


def test_tables_and_what_others_print_belong_to_the_line_before() -> None:
    table = ["I0101 00:00:01.000001 7 server.cc:604] ", "+---+", "| a |", "+---+"]
    first, second = read(*table, 'E0101 00:00:02.000001 7 a.cc:1] "x"')
    assert first["message"] == "\n+---+\n| a |\n+---+"
    assert second["level"] == "error"
    (printed,) = read("from no logger")
    assert printed["message"] == "from no logger"
    assert printed["time"] == "2027-01-01T00:05:00.000000Z"


def test_lines_that_never_stop_are_told_all_the_same() -> None:
    many = read(*["from no logger"] * (2 * MOST_LINES + 1))
    assert [str(one["message"]).count("\n") + 1 for one in many] == [MOST_LINES, MOST_LINES, 1]
    assert len(read(*["x" * (MOST_CHARACTERS // 2 + 1)] * 3)) == 3
    now = [NOW]
    reader = Reader(lambda: now[0])
    assert reader.take("first") is None
    now[0] += MOST_AGE + timedelta(seconds=1)
    done = reader.take("second")
    assert done is not None
    assert done["message"] == "first"


def test_what_others_print_does_not_spoil_a_stages_object() -> None:
    ours = json.dumps({"event": "turn_failed", "message": "gone", "turn": "t-1"})
    first, second = read(f"E0101 00:00:01.000001 7 a.cc:1] {json.dumps(ours)}", "+---+")
    assert (first["process"], first["turn"]) == ("stage", "t-1")
    assert second["message"] == "+---+"


def test_odd_lines_are_told_as_they_are() -> None:
    deep = "[" * 100_000
    moment, nested = read(
        'E9999 99:99:99.1 7 a.cc:1] "x"', f'E0101 00:00:01.000001 7 a.cc:1] "{deep}"'
    )
    assert moment["time"] == "2027-01-01T00:05:00.000000Z"
    assert nested["message"] == deep
    lines: list[str] = []
    JsonLog(lines.append).write({"message": "\ud800"})
    assert lines[0].encode() == b'{"message": "\\ud800"}\n'


def told() -> list[tuple[str, dict[str, str]]]:
    return [(level, json.loads(line)) for level, line in fakes.Logger.lines]


def test_a_failed_turn_is_told_with_its_id_trace_and_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOG_FORMAT, "json")
    log_failed_turn(Overloaded("full", stage="think", reason="queue"), "turn", "t-1", TRACEPARENT)
    log_failed_turn(StageFailed("gone"), "turn", "t-2", "")
    assert told() == [
        (
            "warn",
            {
                "event": "turn_failed",
                "message": "full",
                "stage": "turn",
                "failed_at": "think",
                "turn": "t-1",
                "trace": "4bf92f3577b34da6a3ce929d0e0e4736",
                "code": "OVERLOADED",
                "reason": "queue",
            },
        ),
        (
            "error",
            {
                "event": "turn_failed",
                "message": "gone",
                "stage": "turn",
                "turn": "t-2",
                "code": "STAGE_FAILED",
            },
        ),
    ]


def test_what_a_caller_wrote_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOG_FORMAT, "json")
    log_failed_turn(InvalidInput("'my secret' is no voice"), "turn", "t", "")
    ((level, one),) = told()
    assert level == "info"
    assert "secret" not in json.dumps(one)
    fakes.Logger.lines.clear()
    log_fault("broken", ValueError("my secret"), stage="think", turn="t")
    ((level, one),) = told()
    assert (level, one["stage"], one["exception"]) == ("error", "think", "ValueError")
    assert "secret" not in json.dumps(one)


def test_failed_turns_are_not_in_a_log_of_text() -> None:
    log_failed_turn(StageFailed("gone"), "turn", "t", "")
    assert fakes.Logger.lines == []


def wait_for(so: Callable[[], object]) -> None:
    deadline = time.monotonic() + fakes.WAIT_S
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Server:
    def __init__(self, path: Path) -> None:
        self.log = ServerLog(path)
        self.alive = True


def test_a_log_is_followed_over_a_restart_and_stages_objects_are_opened(tmp_path: Path) -> None:
    first, second = tmp_path / "one.log", tmp_path / "two.log"
    ours = json.dumps({"event": "turn_failed", "message": "gone", "stage": "turn", "turn": "t-1"})
    begins = "E0101 00:00:01.000001 7 python_be.cc:1] "
    first.write_text(begins + json.dumps(ours) + "\n" + begins + '"last words"\n')
    second.write_text(begins + '"again"\n')
    server, found = Server(first), list[dict[str, object]]()
    with following(server, found.append):
        wait_for(lambda: len(found) == 2)
        server.log = ServerLog(second)
        wait_for(lambda: len(found) == 3)
    assert [one["message"] for one in found] == ["gone", "last words", "again"]
    stage = next(one for one in found if one["message"] == "gone")
    assert (stage["process"], stage["turn"], stage["level"]) == ("stage", "t-1", "error")


def test_a_crashed_servers_last_words_are_told_without_a_lines_end(tmp_path: Path) -> None:
    path, found = tmp_path / "one.log", list[dict[str, object]]()
    path.write_text('E0101 00:00:01.000001 7 a.cc:1] "x"\nterminate called')
    server = Server(path)
    with following(server, found.append):
        wait_for(lambda: found)
        server.log = ServerLog(tmp_path / "two.log")
    assert [one["message"] for one in found] == ["x", "terminate called"]


def test_several_servers_are_followed_as_they_come_and_go(tmp_path: Path) -> None:
    def server(name: str) -> Server:
        path = tmp_path / f"{name}.log"
        path.write_text(f'E0101 00:00:01.000001 7 a.cc:1] "{name}"\n')
        return Server(path)

    front, think = server("front"), server("think")
    servers, found = {"front-1": front}, list[dict[str, object]]()
    with following_all(lambda: dict(servers), found.append):
        wait_for(lambda: len(found) == 1)
        servers["think-1"] = think
        wait_for(lambda: len(found) == 2)
        del servers["think-1"]
        with think.log.path.open("a") as file:
            file.write("last words, while it is being stopped")
        think.alive = False
        wait_for(lambda: len(found) == 3)
        servers["think-1"] = server("another")
    told = [(one["server"], str(one["message"]).split(",")[0]) for one in found]
    assert told == [
        ("front-1", "front"),
        ("think-1", "think"),
        ("think-1", "last words"),
        ("think-1", "another"),
    ]


def test_the_launcher_names_the_stage_that_its_watchdog_tells_of() -> None:
    lines: list[str] = []
    log = JsonLog(lines.append)
    log("loading models")
    log.told("lost", "model 'think': its process has ended")
    progress, lost = map(json.loads, lines)
    assert (progress["level"], progress["process"]) == ("info", "launcher")
    assert (lost["level"], lost["stage"], lost["event"]) == ("warning", "think", "lost")
    log.told("down", "its process has ended", server="think-1")
    assert (json.loads(lines[-1])["level"], json.loads(lines[-1])["server"]) == ("error", "think-1")
