"""A Triton as NVIDIA's image has it, made of the wheel's, with stand-ins for native backends."""

import os
import shutil
from pathlib import Path

from deploy.backends import PYTHON_BACKENDS, STANDINS, STUB, Triton


def lay_out(root: Path) -> Path:
    """Its folder: bin/, caches/, and backends/ with `python`, native ones and ours."""
    wheel = Triton.found({})
    root.mkdir()
    for name in ("bin", "caches"):
        (root / name).symlink_to(wheel.folder / name)
    shutil.copytree(wheel.backends, root / "backends")
    shutil.copy(wheel.stub, root / "backends" / "python" / STUB)
    for model in (*STANDINS.glob("*/model.py"), *PYTHON_BACKENDS.glob("*/model.py")):
        shutil.copytree(model.parent, root / "backends" / model.parent.name)
        if model.is_relative_to(STANDINS):
            for path in (STANDINS / "shared").glob("*.py"):
                shutil.copy(path, root / "backends" / model.parent.name)
    return root


def libraries() -> str:
    """What the image's own LD_LIBRARY_PATH would say."""
    return os.pathsep.join(Triton.found({}).libraries)
