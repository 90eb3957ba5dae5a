"""Engines of the fake TensorRT in `fake_gpu`, as `python -m build tensorrt` would leave them."""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from build.tensorrt import profiles, record
from build.tensorrt.profiles import Profile
from build.tensorrt.recipes import RECIPES, open_inputs
from build.tensorrt.record import Key
from python_backends.digests import sha256
from python_backends.tensorrt.device import NO_GPU

FAKE_GPU = Path(__file__).parent / "fake_gpu"


def fake() -> Any:
    """The module, imported as `tensorrt`; nothing else of that name is installed."""
    if str(FAKE_GPU) not in sys.path:
        sys.path.insert(0, str(FAKE_GPU))
    return importlib.import_module("tensorrt")


def write(
    folder: Path,
    graph: Path,
    shapes: Sequence[Profile],
    *,
    version: str | None = None,
    capability: str = NO_GPU,
) -> Path:
    """`folder`/model-cc0.0.plan of a graph, with its record."""
    trt = fake()
    version = version or trt.__version__
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / record.engine_name(NO_GPU)
    told = profiles.told(list(shapes))
    path.write_bytes(trt.plan(graph.resolve(), told, version=version, capability=capability))
    key = Key(folder.parent.name, sha256(graph), "fp32", told, "tensorrt", version, capability)
    record.write(path, key, {})
    return path


def beside_links(source: Path, folder: Path) -> Path:
    """A version folder with links to what lies in another one."""
    folder.mkdir(parents=True)
    for path in source.iterdir():
        os.symlink(path.resolve(), folder / path.name)
    return folder


def of_model(source: Path, repository: Path, **other: str) -> Path:
    """A version folder of a model in a repository of its own: its files, and the engine that its
    recipe asks for."""
    model = source.parent.name
    recipe = RECIPES[model]
    folder = beside_links(source, repository / model / "1")
    graph = folder / recipe.graph
    write(folder, graph, recipe.profiles(open_inputs(graph)), **other)
    return folder
