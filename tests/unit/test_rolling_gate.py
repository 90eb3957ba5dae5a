"""Gates of upgrades, which are real processes."""

import time
from pathlib import Path

import pytest

from deploy.errors import UpgradeFailed
from deploy.rolling.gate import pass_gate

PATIENCE_S = 10.0


def passed(command: str, *, timeout_s: float = PATIENCE_S) -> list[str]:
    told: list[str] = []
    pass_gate(command, {"MODEL": "think.v2"}, told.append, lambda: None, timeout_s)
    return told


def test_a_gate_that_passes_tells_what_it_writes() -> None:
    assert passed("echo $MODEL; echo is well >&2") == ["gate: think.v2", "gate: is well"]


def test_one_that_does_not_is_named() -> None:
    with pytest.raises(UpgradeFailed, match="its gate ended with 7: exit 7"):
        passed("exit 7")


def test_one_that_takes_too_long_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(UpgradeFailed, match=r"more than 0\.3 s"):
        passed(f"sleep 60 & echo $! > {pid}; wait", timeout_s=0.3)
    is_gone(pid)


def test_what_one_leaves_behind_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    assert passed(f"sleep 60 & echo $! > {pid}; echo done") == ["gate: done"]
    is_gone(pid)


def is_gone(file: Path) -> None:
    """The process of this pid, but for its entry until somebody has taken note."""
    deadline = time.monotonic() + PATIENCE_S
    while state_of(file.read_text().strip()) not in ("", "Z"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def state_of(pid: str) -> str:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
