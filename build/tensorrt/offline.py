"""TensorRT-RTX without a GPU: its importer and its builder run anywhere, and so prove our graphs.

Libraries and bindings are in two wheels of PyPI, pinned and taken apart here, never installed; the
loader finds the libraries by links and LD_LIBRARY_PATH, so they are used in a process of their own.
TensorRT-RTX is a sibling of TensorRT: what it parses TensorRT should, which is not proved here.
"""

import importlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from build.fetch import Package, cache_dir, member_of
from build.lineage import ROOT

LIBRARIES = Package(
    "onnxruntime-ep-nv-tensorrt-rtx-cu12",
    "0.5.0",
    "Apache-2.0; the libraries: NVIDIA's licence of TensorRT-RTX",
    "libraries of TensorRT-RTX 1.7 (tests)",
    "d71fcbaf4adc627d82fffa6bbac9300a4bfc58fbfa604929b601d22211083d47",
    tags="py3-none-manylinux_2_28_x86_64",
)
BINDINGS = Package(
    "tensorrt-rtx-cu12-bindings",
    "1.7.1.116",
    "NVIDIA's licence of TensorRT-RTX",
    "Python bindings of TensorRT-RTX (tests)",
    "aea28353c9a0e724c60673db48adb0fe4a1970c5109be68a562a32845bc6d230",
    tags="cp311-none-manylinux_2_28_x86_64",
)
MODULE = "tensorrt_rtx_bindings"
_LINKS = {
    "libtensorrt_rtx.so.1": "onnxruntime_ep_nv_tensorrt_rtx/libtensorrt_rtx.so.1.7.1",
    "libtensorrt_onnxparser_rtx.so.1": (
        "onnxruntime_ep_nv_tensorrt_rtx/libtensorrt_onnxparser_rtx.so.1.7.1"
    ),
}


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """Environment of a process that can `load`; fetches both wheels the first time (172 MB)."""
    links = cache_dir() / "members" / "tensorrt-rtx"
    links.mkdir(parents=True, exist_ok=True)
    for name, inside in _LINKS.items():
        library = member_of(LIBRARIES, inside)
        if not (links / name).exists():
            (links / name).symlink_to(library)
    parts = [str(links), base.get("LD_LIBRARY_PATH", "")]
    return {**base, "LD_LIBRARY_PATH": os.pathsep.join(part for part in parts if part)}


def load() -> Any:
    """The bindings, in a process that was started with `environment`."""
    names = ("__init__.py", "tensorrt_rtx.so")
    folders = {member_of(BINDINGS, f"{MODULE}/{name}").parents[1] for name in names}
    sys.path[:0] = [str(folder) for folder in folders]
    return importlib.import_module(MODULE)


def run(module: str, arguments: Sequence[str], timeout_s: float) -> str:
    """What `python -m module arguments` prints, with TensorRT-RTX at hand. CalledProcessError
    where it fails, with its stderr as a note."""
    answer = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment(os.environ),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if answer.returncode:
        fault = subprocess.CalledProcessError(answer.returncode, answer.args)
        fault.add_note(answer.stderr[-4000:])
        raise fault
    return answer.stdout
