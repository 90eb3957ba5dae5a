"""Every unit test sees the fake Triton stub, and each one a fresh log and no models."""

import sys
from pathlib import Path

import pytest

from tests import fakes

sys.modules["triton_python_backend_utils"] = fakes


@pytest.fixture(autouse=True)
def _fresh_stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRISTAGE_BOARD", str(tmp_path / "board"))
    fakes.MODELS.clear()
    fakes.Logger.lines.clear()
    fakes.METRICS.clear()
    fakes.GIVEN_UP.clear()
