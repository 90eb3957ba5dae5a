"""What runs beside something else is waited for, and ends with it when it fails."""

import sys
import time
from pathlib import Path

import pytest

from build.__main__ import main
from build.beside import beside
from build.errors import BuildError


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_both_end_before_the_block_is_left(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "other.log"
    with beside(python("import time; time.sleep(0.3); print('trained')"), log, "training"):
        assert log.exists()
    assert log.read_text() == "trained\n"


def test_a_command_that_fails_is_told_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "other.log"
    with (
        pytest.raises(BuildError, match=r"training: failed with exit code 3; see .*other\.log"),
        beside(python("raise SystemExit(3)"), log, "training"),
    ):
        pass


def test_a_block_that_fails_ends_the_command(tmp_path: Path) -> None:
    began = time.monotonic()
    with (
        pytest.raises(KeyboardInterrupt),
        beside(python("import time; time.sleep(60)"), tmp_path / "log", "training"),
    ):
        raise KeyboardInterrupt
    assert time.monotonic() - began < 50


def test_only_known_parts_are_trained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "vice"]) == 1
    assert "no such part: ['vice']; known are ['orders', 'voice']" in capsys.readouterr().err
