"""The doctor names what is missing and the one command that brings it."""

from pathlib import Path

import pytest

from deploy import doctor

FIT = doctor.Machine(
    python=(3, 11),
    has_venv=True,
    has_libpython=True,
    disk_gb=20.0,
    shared_memory_gb=8.0,
    installed=False,
    installer="apt",
)


def test_a_fit_machine_lacks_nothing() -> None:
    assert doctor.diagnose(FIT) == []


@pytest.mark.parametrize(
    ("change", "what", "command"),
    [
        ({"python": (3, 12)}, "Python 3.11 (found 3.12)", "apt-get install"),
        ({"has_venv": False}, "the venv module", "python3.11-venv"),
        ({"has_libpython": False}, "libpython3.11.so.1.0", "libpython3.11"),
        ({"has_libpython": False, "installer": "pyenv"}, "libpython3.11", "--enable-shared"),
        ({"disk_gb": 7.9}, "disk: 8 GB needed here, 7.9 GB free", "git clone"),
        ({"shared_memory_gb": 0.06}, "/dev/shm: 1 GB free needed, 0.1 GB free", "remount,size=2G"),
    ],
)
def test_one_missing_thing_is_named_with_its_command(
    change: dict[str, object], what: str, command: str
) -> None:
    (missing,) = doctor.diagnose(FIT._replace(**change))  # type: ignore[arg-type]
    assert what in missing.what
    assert command in missing.command


def test_everything_that_is_missing_is_named_at_once() -> None:
    bare = FIT._replace(python=(3, 9), disk_gb=1.0, shared_memory_gb=0.0)
    assert len(doctor.diagnose(bare)) == 3


def test_an_installed_project_needs_little_more_disk() -> None:
    assert doctor.diagnose(FIT._replace(disk_gb=3.0, installed=True)) == []


@pytest.mark.parametrize("installer", sorted(doctor.PYTHON))
def test_every_installer_has_one_command_for_python(installer: str) -> None:
    (missing,) = doctor.diagnose(FIT._replace(python=(3, 13), installer=installer))
    assert "3.11" in missing.command


def test_apt_is_named_only_where_it_has_python_311(tmp_path: Path) -> None:
    release = tmp_path / "os-release"
    release.write_text('ID=debian\nVERSION_ID="12"\n')
    assert doctor.installer(release) == "apt"
    release.write_text('ID=ubuntu\nVERSION_ID="24.04"\n')
    assert doctor.installer(release) != "apt"
    assert doctor.installer(tmp_path / "absent") != "apt"


def test_this_machine_is_examined_and_fit() -> None:
    machine = doctor.examine(Path(__file__).parents[2])
    assert machine.python == (3, 11)
    assert machine.has_venv
    assert machine.has_libpython
