"""Which server is started, and whether it has the backends that it needs."""

import shutil
from pathlib import Path

import pytest

from deploy import backends
from deploy.backends import PYTHON_BACKENDS, VARIABLE, Triton
from deploy.errors import EnvironmentUnfit
from tests.installed_triton import lay_out


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = lay_out(tmp_path / "tritonserver")
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder


def test_the_wheels_server_is_taken_where_none_is_named(tmp_path: Path) -> None:
    wheel = Triton.found({})
    assert not wheel.is_installed
    assert wheel.binary.exists()
    assert wheel.stub.exists()
    made = backends.directory(tmp_path / "backends")
    assert made == tmp_path / "backends"
    assert {"python", "onnxruntime", "ar_loop"} <= {path.name for path in made.iterdir()}


def test_an_installed_server_is_taken_as_it_is(installed: Path, tmp_path: Path) -> None:
    assert backends.directory(tmp_path / "backends") == installed / "backends"
    assert not (tmp_path / "backends").exists()
    found = backends.environment({VARIABLE: str(installed), "LD_LIBRARY_PATH": "/its"}, "", "", {})
    assert found["LD_LIBRARY_PATH"] == "/its"
    backends.require_stub_environment()


def test_a_folder_without_a_server_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnfit, match=f"{VARIABLE}={tmp_path}: there is no .*bin/triton"):
        Triton.found({VARIABLE: str(tmp_path)})


def test_backends_that_it_has_not_or_not_as_here_are_named_with_the_cure(
    installed: Path, tmp_path: Path
) -> None:
    shutil.rmtree(installed / "backends" / "ar_loop")
    (installed / "backends" / "front_door" / "model.py").write_text("# of another version")
    extra = tmp_path / "extra"
    (extra / "mine").mkdir(parents=True)
    (extra / "mine" / "model.py").touch()
    with pytest.raises(EnvironmentUnfit) as refused:
        backends.directory(tmp_path / "backends", [extra])
    assert "ar_loop, front_door, mine; run: cp -r " in str(refused.value)
    assert f"{PYTHON_BACKENDS / 'ar_loop'} " in str(refused.value)
    assert str(refused.value).endswith(f" {extra / 'mine'} {installed / 'backends'}")


def test_a_server_without_a_stub_is_refused(installed: Path) -> None:
    (installed / "backends" / "python" / backends.STUB).unlink()
    with pytest.raises(EnvironmentUnfit, match="no Python stub"):
        backends.require_stub_environment()
