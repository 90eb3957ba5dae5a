"""Our launcher on a Triton that is installed, laid out as in NVIDIA's image."""

import os
import signal
from pathlib import Path

import pytest

from deploy.backends import VARIABLE
from deploy.launcher import Server
from deploy.settings import Settings
from python_backends import siblings
from tests.installed_triton import lay_out, libraries

pytestmark = pytest.mark.server


def test_it_serves_a_turn_and_its_dead_stage_is_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn is spoken before `start` returns."""
    folder = lay_out(tmp_path / "tritonserver")
    monkeypatch.setenv(VARIABLE, str(folder))
    monkeypatch.setenv("LD_LIBRARY_PATH", libraries())
    with Server(Settings(models=["turn"], out=tmp_path / "out")) as server:
        command = Path(f"/proc/{server.pid}/cmdline").read_text()
        assert f"--backend-directory={folder / 'backends'}" in command
        assert not (server.run / "backends").exists()
        [stub] = [pid for name, pid in siblings.stubs(server.pid, server.models) if name == "think"]
        os.kill(stub, signal.SIGKILL)
        server.reload("think")
        server.check("think")
