"""What a machine must have before `make run` downloads anything: `python3 deploy/doctor.py [ROOT]`.

Runs on whatever Python 3 there is, standard library only. Each missing thing is named with the one
command that brings it; the exit code is 1 then.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

WANTED = (3, 11)
GB = 1_000_000_000
FRESH_DISK_GB = 8.0
INSTALLED_DISK_GB = 2.0
"""Once the packages are installed, models, logs and replies are still to be written."""

SHARED_MEMORY_GB = 1.0
LIBPYTHON = "libpython3.11.so.1.0"


class Machine(NamedTuple):
    """What was found on this machine."""

    python: tuple[int, int]
    has_venv: bool
    has_libpython: bool
    disk_gb: float
    shared_memory_gb: float
    installed: bool
    """The project's packages are in .venv already."""

    installer: str
    """The way to get software here: "apt", "dnf", "pyenv" or "uv"."""


class Missing(NamedTuple):
    """One thing that is missing, and the command that brings it."""

    what: str
    command: str


PYTHON = {
    "apt": "sudo apt-get install -y python3.11 python3.11-venv libpython3.11",
    "dnf": "sudo dnf install -y python3.11 python3.11-libs",
    "pyenv": "PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install --force 3.11 && pyenv local 3.11",
    "uv": "curl -LsSf https://astral.sh/uv/install.sh | sh && uv python install --default 3.11",
}


def diagnose(machine: Machine) -> list[Missing]:
    """What is missing; empty when `make run` can begin."""
    missing = []
    bring_python = PYTHON[machine.installer]
    if machine.python != WANTED:
        found = ".".join(map(str, machine.python))
        missing.append(Missing(f"Python 3.11 (found {found})", bring_python))
    else:
        if not machine.has_venv:
            missing.append(Missing("the venv module of Python 3.11", bring_python))
        if not machine.has_libpython:
            missing.append(Missing(f"the shared library {LIBPYTHON}", bring_python))
    return [*missing, *_missing_room(machine)]


def _missing_room(machine: Machine) -> list[Missing]:
    missing = []
    needed = INSTALLED_DISK_GB if machine.installed else FRESH_DISK_GB
    if machine.disk_gb < needed:
        what = f"disk: {needed:g} GB needed here, {machine.disk_gb:.1f} GB free"
        missing.append(Missing(what, 'git clone . "$BIGGER_DISK"/tristage'))
    if machine.shared_memory_gb < SHARED_MEMORY_GB:
        what = (
            f"/dev/shm: {SHARED_MEMORY_GB:g} GB free needed, {machine.shared_memory_gb:.1f} GB free"
        )
        command = "sudo mount -o remount,size=2G /dev/shm   # in docker: run --shm-size=2g"
        missing.append(Missing(what, command))
    return missing


def examine(root: Path) -> Machine:
    """This machine, as the project in `root` would use it."""
    return Machine(
        python=(sys.version_info[0], sys.version_info[1]),
        has_venv=_has_venv(),
        has_libpython=has_libpython(),
        disk_gb=_free_gb(root),
        shared_memory_gb=_free_gb(Path("/dev/shm")),
        installed=(root / ".venv" / ".run-installed").exists(),
        installer=installer(Path("/etc/os-release")),
    )


def has_libpython() -> bool:
    """The library the server's Python stub is linked with: in LIBDIR, or known to the loader."""
    libraries = str(sysconfig.get_config_var("LIBDIR") or "")
    return (Path(libraries) / LIBPYTHON).exists() or LIBPYTHON in _loader_cache()


def installer(os_release: Path) -> str:
    """How software comes to this machine; apt only where its release carries Python 3.11."""
    try:
        release = dict(re.findall(r'^(\w+)="?([^"\n]*)', os_release.read_text(), re.MULTILINE))
    except OSError:
        release = {}
    if (release.get("ID"), release.get("VERSION_ID")) == ("debian", "12"):
        return "apt"
    return next((tool for tool in ("dnf", "pyenv") if shutil.which(tool)), "uv")


def _has_venv() -> bool:
    """Debian ships the venv module without what it needs (ensurepip)."""
    try:
        import ensurepip
        import venv
    except ImportError:
        return False
    return bool(ensurepip and venv)


def _loader_cache() -> str:
    tool = shutil.which("ldconfig") or "/sbin/ldconfig"
    try:
        return subprocess.run([tool, "-p"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def _free_gb(path: Path) -> float:
    try:
        room = os.statvfs(path)
    except OSError:
        return 0.0
    return room.f_bavail * room.f_frsize / GB


def main() -> int:
    """Print what is missing; 1 if anything is."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    missing = diagnose(examine(root))
    for item in missing:
        print(f"missing  {item.what}\n    run: {item.command}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
