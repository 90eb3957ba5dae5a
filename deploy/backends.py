"""Which tritonserver is started, with which backends, and the environment its Python stubs need.

That of the nvidia-pytriton wheel, on the CPU, for which a backend directory is made for each run.
Or an installed one, as NVIDIA's image has it, whose own backend directory must have ours already:
its native backends, gigabytes, cannot be linked from elsewhere ("escapes backend directory").
"""

import filecmp
import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from deploy.errors import EnvironmentUnfit

ROOT = Path(__file__).resolve().parents[1]
PYTHON_BACKENDS = ROOT / "python_backends"
STANDINS = ROOT / "deploy" / "standins"
INSTALL = "pip install -e '.[embedded]'"
VARIABLE: Final = "TRISTAGE_TRITON"
"""Names the folder of an installed Triton (/opt/tritonserver); without it, the wheel's is used."""

STUB: Final = "triton_python_backend_stub"


@dataclass(frozen=True)
class Triton:
    """A server: `folder` has its bin/ and backends/."""

    folder: Path
    is_installed: bool
    """By itself, with native backends and one Python stub; else it is the wheel's."""

    @classmethod
    def found(cls, environment: Mapping[str, str] = os.environ) -> "Triton":
        """EnvironmentUnfit when there is none."""
        named = environment.get(VARIABLE)
        if named:
            return cls(Path(named), is_installed=True)._with_binary()
        spec = importlib.util.find_spec("pytriton")
        if spec is None or not spec.submodule_search_locations:
            raise EnvironmentUnfit(
                f"nvidia-pytriton is not installed; run: {INSTALL}; or name the folder of an "
                f"installed Triton by {VARIABLE}"
            )
        return cls(Path(spec.submodule_search_locations[0]) / "tritonserver", is_installed=False)

    @property
    def binary(self) -> Path:
        return self.folder / "bin" / "tritonserver"

    @property
    def backends(self) -> Path:
        """Where its own ones lie."""
        return self.folder / "backends"

    @property
    def stub(self) -> Path:
        """Its Python stub; of the wheel's many, that for the Python that runs this."""
        if self.is_installed:
            return self.backends / "python" / STUB
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "python_backend_stubs" / version / STUB

    @property
    def libraries(self) -> list[str]:
        """Folders that its loader must be told of; an image has told it itself."""
        if self.is_installed:
            return []
        return [str(self.folder.parents[1] / "nvidia_pytriton.libs"), _libpython()]

    def _with_binary(self) -> "Triton":
        if not self.binary.exists():
            raise EnvironmentUnfit(f"{VARIABLE}={self.folder}: there is no {self.binary}")
        return self


def require_stub_environment() -> None:
    """EnvironmentUnfit unless models can run in this environment.

    With numpy 2 the stub answers OK with empty tensors, or crashes; nothing says why.
    """
    numpy = metadata.version("numpy")
    if int(numpy.split(".")[0]) >= 2:
        raise EnvironmentUnfit(
            f"numpy {numpy} is installed, but the server's Python stub needs numpy < 2; "
            f"run: {INSTALL}"
        )
    stub = Triton.found().stub
    if not stub.exists():
        raise EnvironmentUnfit(
            f"the server has no Python stub for Python {sys.version.split()[0]} ({stub}); "
            "use Python 3.11"
        )
    try:
        metadata.version("tristage")
    except metadata.PackageNotFoundError as fault:
        raise EnvironmentUnfit(
            f"this project is not installed here, so no model can import python_backends; "
            f"run: {INSTALL}"
        ) from fault


def directory(target: Path, extra: Iterable[Path] = ()) -> Path:
    """The backend directory of a run, with the backends in the folders `extra`: made at `target`
    for the wheel's server; an installed server's own, once it was seen that it has all of them.
    EnvironmentUnfit, naming those that it has not.
    """
    triton = Triton.found()
    if not triton.is_installed:
        return _assembled(target, triton, extra)
    ours = [folder for parent in (PYTHON_BACKENDS, *extra) for folder in _backends(parent)]
    unlike = [folder for folder in ours if not _has(triton.backends, folder)]
    if unlike:
        raise EnvironmentUnfit(
            f"{triton.backends} has not, or not as here: {', '.join(one.name for one in unlike)}; "
            f"run: cp -r {' '.join(map(str, unlike))} {triton.backends}"
        )
    return triton.backends


def environment(
    base: Mapping[str, str], grpc_address: str, prefix: str, more: Mapping[str, str]
) -> dict[str, str]:
    """Environment variables of a server and so of its stubs; those of `more` win.

    The stub finds its venv by PATH and libpython by LD_LIBRARY_PATH; numpy may use one thread.
    The board of running streams, and what stages share with other servers, lies beside the server's
    own shared memory, under its `prefix`: it is removed with it.
    """
    result = dict(base)
    libraries = Triton.found(base).libraries
    result["LD_LIBRARY_PATH"] = _joined(*libraries, base.get("LD_LIBRARY_PATH"))
    result["PATH"] = _joined(str(Path(sys.prefix) / "bin"), base.get("PATH"))
    result["TRISTAGE_GRPC"] = grpc_address
    result["TRISTAGE_SHM_PREFIX"] = prefix
    result["TRISTAGE_BOARD"] = f"/dev/shm/{prefix}board"
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        result.setdefault(threads, "1")
    return result | dict(more)


def _assembled(target: Path, triton: Triton, extra: Iterable[Path]) -> Path:
    """Triton's `python`, our backends, the stand-ins and `extra`, all copied: tritonserver refuses
    a symlinked libtriton_python.so, and the stub must lie beside it."""
    python = target / "python"
    python.mkdir(parents=True)
    for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
        shutil.copy(triton.backends / "python" / name, python / name)
    shutil.copy(triton.stub, python)
    for folder in _backends(PYTHON_BACKENDS):
        (target / folder.name).mkdir()
        shutil.copy(folder / "model.py", target / folder.name)
    for parent in (STANDINS, *extra):
        for folder in _backends(parent):
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(folder, target / folder.name, ignore=ignore)
    for folder in _backends(STANDINS):
        for path in (STANDINS / "shared").glob("*.py"):
            shutil.copy(path, target / folder.name)
    return target


def _has(backends: Path, folder: Path) -> bool:
    there = backends / folder.name / "model.py"
    return there.exists() and filecmp.cmp(there, folder / "model.py", shallow=False)


def _backends(parent: Path) -> list[Path]:
    return sorted(path.parent for path in parent.glob("*/model.py"))


def _libpython() -> str:
    return str(sysconfig.get_config_var("LIBDIR"))


def _joined(*parts: str | None) -> str:
    return os.pathsep.join(part for part in parts if part)
