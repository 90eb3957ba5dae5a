"""Every unit test sees the fake Triton stub, and each one a fresh log and no models."""

import sys

import pytest

from tests import fakes

sys.modules["triton_python_backend_utils"] = fakes


@pytest.fixture(autouse=True)
def _fresh_stub() -> None:
    fakes.MODELS.clear()
    fakes.Logger.lines.clear()
