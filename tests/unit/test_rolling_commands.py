"""`upgrade`, `rollback` and `versions` as a person gives them, to a server that only says so."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.__main__ import main
from deploy.processes import start_time
from deploy.rolling.commands import SERVING, obeying
from tests.unit.rolling_world import World, copies, world

__all__ = ["world"]
THINK = "think"


@pytest.fixture
def obeyed(world: World, tmp_path: Path) -> Iterator[World]:
    """It takes orders below `tmp_path`."""
    with obeying(world.server, tmp_path) as upgrades:
        world.upgrades = upgrades
        yield world


@pytest.fixture
def new(tmp_path: Path) -> Path:
    copies(tmp_path / "new")
    return tmp_path / "new"


def order(folder: Path, *words: str) -> int:
    return main(["--out", str(folder), *words])


def record(folder: Path, pid: int, started: int | None, control: str = "nowhere") -> Path:
    path = folder / SERVING / f"{pid}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"pid": pid, "started": started, "control": control}))
    return path


def test_a_version_is_brought_in_and_back(
    obeyed: World,
    tmp_path: Path,
    new: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert order(tmp_path, "upgrade", THINK, "--from", str(new), "--trial-s", "0") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "think 2: loading, beside what serves"
    assert told[-1] == "think 2: serving; the version before is gone"
    assert obeyed.served_by(THINK) == "new think"

    assert order(tmp_path, "versions") == 0
    told = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in told if line.startswith(THINK)]
    assert [row[:5] for row in rows] == [
        [THINK, "1", "gone", "no", "-"],
        [THINK, "2", "serving", "yes", "-"],
    ]
    assert rows[1][5] == str(new)

    assert order(tmp_path, "rollback", THINK, "--trial-s", "0") == 0
    assert obeyed.served_by(THINK) == "first think"


def test_a_rollback_ends_when_the_upgrade_has_been_taken_back(
    obeyed: World, tmp_path: Path, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    obeyed.turns = {0: 1}
    codes = []
    upgrade = ("upgrade", THINK, "--from", str(new), "--trial-s", "0")
    with obeyed.trying(lambda: codes.append(order(tmp_path, *upgrade))) as raised:
        while obeyed.server.serving.model(THINK) == THINK:
            obeyed.wait_a_moment()
        assert order(tmp_path, "rollback", THINK) == 0
        assert obeyed.server.serving.model(THINK) == THINK
        assert obeyed.beside == []
    assert (codes, raised) == ([1], [])
    told = capsys.readouterr()
    assert "think 2, which is under way, is being taken back\nthink 1: serving again" in told.out
    assert told.err == "error: think 2 was taken back, think 1 serves: it was called off\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("rollback", THINK), "no version of think served before 1"),
        (("rollback", "vad"), "'vad' is not a stage of turns"),
        (("upgrade", THINK, "--to", "1"), "version 1 of think serves already"),
        (("upgrade", THINK, THINK, "--to", "2"), "each stage once, not think, think"),
    ],
)
def test_what_is_refused_is_told(
    obeyed: World,
    tmp_path: Path,
    words: tuple[str, ...],
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert order(tmp_path, *words) == 1
    assert capsys.readouterr().err.startswith(f"error: {why}")


def test_a_gate_tells_its_orderer(
    obeyed: World, tmp_path: Path, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = ("--gate", "echo heard at $TRISTAGE_GRPC; false")
    assert order(tmp_path, "upgrade", THINK, "--from", str(new), *gate) == 1
    told = capsys.readouterr()
    assert f"gate: heard at {obeyed.server.grpc_address}\n" in told.out
    assert "its gate ended with 1" in told.err


def test_where_no_server_takes_orders_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = record(tmp_path, os.getpid(), started=-1)
    assert order(tmp_path, "versions") == 1
    assert capsys.readouterr().err.startswith("error: no server runs that")
    assert not gone.exists()


def test_of_several_servers_one_is_named(
    obeyed: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = os.getppid()
    record(tmp_path, parent, start_time(parent))
    assert order(tmp_path, "versions") == 1
    told = capsys.readouterr().err
    assert "several servers run, name one: --server" in told
    assert str(parent) in told
    assert order(tmp_path, "versions", "--server", str(os.getpid())) == 0
    assert order(tmp_path, "versions", "--server", str(parent)) == 1
    assert "does not listen at nowhere" in capsys.readouterr().err
    assert order(tmp_path, "versions", "--server", "1") == 1
    assert "no server runs that" in capsys.readouterr().err


def test_a_server_that_has_ended_takes_no_orders(world: World, tmp_path: Path) -> None:
    with obeying(world.server, tmp_path):
        [found] = (tmp_path / SERVING).glob("*.json")
        control = Path(json.loads(found.read_text())["control"])
        assert control.exists()
    assert not found.exists()
    assert not control.exists()
