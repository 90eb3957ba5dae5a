"""The backend directory of a run, and the environment its Python stub needs.

Everything is copied: tritonserver refuses a symlinked libtriton_python.so ("escapes backend
directory"), and the stub must lie beside it.
"""

import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from deploy.errors import EnvironmentUnfit

ROOT = Path(__file__).resolve().parents[1]
PYTHON_BACKENDS = ROOT / "python_backends"
STANDINS = ROOT / "deploy" / "standins"
INSTALL = "pip install -e '.[embedded]'"


def tritonserver() -> Path:
    """Folder of the server in the nvidia-pytriton wheel: bin/, backends/, python_backend_stubs/."""
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentUnfit(f"nvidia-pytriton is not installed; run: {INSTALL}")
    return Path(spec.submodule_search_locations[0]) / "tritonserver"


def stub(server: Path) -> Path:
    """The Python stub of the server for the Python that runs this."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return server / "python_backend_stubs" / version / "triton_python_backend_stub"


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
    if not stub(tritonserver()).exists():
        raise EnvironmentUnfit(
            f"the server has no Python stub for Python {sys.version.split()[0]}; use Python 3.11"
        )
    try:
        metadata.version("tristage")
    except metadata.PackageNotFoundError as fault:
        raise EnvironmentUnfit(
            f"this project is not installed here, so no model can import python_backends; "
            f"run: {INSTALL}"
        ) from fault


def assemble(target: Path, extra: Iterable[Path] = ()) -> Path:
    """Make `target` a backend directory: Triton's `python`, our backends, the stand-ins, and the
    backends in the folders `extra`. Returns `target`."""
    server = tritonserver()
    python = target / "python"
    python.mkdir(parents=True)
    for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
        shutil.copy(server / "backends" / "python" / name, python / name)
    shutil.copy(stub(server), python)
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


def environment(
    base: Mapping[str, str], grpc_address: str, prefix: str, more: Mapping[str, str]
) -> dict[str, str]:
    """Environment variables of a server and so of its stubs; those of `more` win.

    The stub finds its venv by PATH and libpython by LD_LIBRARY_PATH; numpy may use one thread.
    The board of running streams, and what stages share with other servers, lies beside the server's
    own shared memory, under its `prefix`: it is removed with it.
    """
    result = dict(base)
    libraries = [str(tritonserver().parents[1] / "nvidia_pytriton.libs")]
    libraries.append(str(sysconfig.get_config_var("LIBDIR")))
    result["LD_LIBRARY_PATH"] = _joined(*libraries, base.get("LD_LIBRARY_PATH"))
    result["PATH"] = _joined(str(Path(sys.prefix) / "bin"), base.get("PATH"))
    result["TRISTAGE_GRPC"] = grpc_address
    result["TRISTAGE_SHM_PREFIX"] = prefix
    result["TRISTAGE_BOARD"] = f"/dev/shm/{prefix}board"
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        result.setdefault(threads, "1")
    return result | dict(more)


def _backends(parent: Path) -> list[Path]:
    return sorted(path.parent for path in parent.glob("*/model.py"))


def _joined(*parts: str | None) -> str:
    return os.pathsep.join(part for part in parts if part)
