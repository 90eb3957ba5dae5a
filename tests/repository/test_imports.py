"""Who may import whom: policies are pure, Triton has one room, and nobody imports the build."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repository.configs import ROOT

SERVED = ("python_backends", "client", "deploy", "loadtest")
TRITON = "triton_python_backend_utils"
TRITON_ROOMS = ("python_backends/bridge/", "deploy/standins/")
IMPURE = {"time", "datetime", "threading", "asyncio", "multiprocessing", "subprocess", "socket"}
OFFLINE = {"torch", "onnx", "onnxscript", "gguf", "safetensors", "scipy", "tensorrt"}
"""Installed by the extra `build` alone."""


def sources(*rooms: str) -> list[Path]:
    return sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Full names of everything a file imports, at the top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def here(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", sources("python_backends/scheduling"), ids=here)
def test_policies_use_the_standard_library_and_no_clock(path: Path) -> None:
    assert not roots(path) & IMPURE
    for name in imported(path):
        own = name.startswith("python_backends.scheduling")
        assert own or name.split(".")[0] in sys.stdlib_module_names, name


@pytest.mark.parametrize("path", sources(*SERVED, "build", "tests"), ids=here)
def test_only_two_rooms_know_triton(path: Path) -> None:
    if not here(path).startswith(TRITON_ROOMS):
        assert TRITON not in roots(path)


@pytest.mark.parametrize("path", sources(*SERVED), ids=here)
def test_nobody_imports_the_build(path: Path) -> None:
    assert "build" not in roots(path)


@pytest.mark.parametrize("path", sources("python_backends"), ids=here)
def test_backends_stand_on_their_own(path: Path) -> None:
    """They are the one package that is installed where a server runs."""
    assert not roots(path) & (OFFLINE | {"client", "deploy", "loadtest", "tests"})


@pytest.mark.parametrize("path", sources("python_backends"), ids=here)
def test_nobody_imports_a_model_class(path: Path) -> None:
    """`model.py` translates between Triton and a loop, and is imported by Triton alone."""
    parts = [name.split(".") for name in imported(path)]
    assert not [name for name in parts if name[0] == "python_backends" and name[2:3] == ["model"]]


@pytest.mark.parametrize("path", sources("python_backends/bridge"), ids=here)
def test_the_bridge_knows_no_stage(path: Path) -> None:
    """It may know what the policies want to be told."""
    ours = {name for name in imported(path) if name.startswith("python_backends.")}
    known = {"bridge", "errors", "declared", "scheduling", "log_format", "siblings", "versions"}
    assert {name.split(".")[1] for name in ours} <= known


@pytest.mark.parametrize(
    ("file", "line", "banned"),
    [
        ("python_backends/scheduling/x.py", "import time", True),
        ("python_backends/scheduling/x.py", f"import {TRITON}", True),
        ("python_backends/ar_loop/x.py", "import time", False),
        ("python_backends/ar_loop/x.py", f"import {TRITON}", True),
        ("python_backends/bridge/x.py", f"import {TRITON}", False),
        ("build/x.py", f"import {TRITON}", True),
        ("deploy/standins/x/model.py", f"import {TRITON}", False),
    ],
)
def test_the_linter_refuses_the_same(file: str, line: str, banned: bool) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename", file, "-"],
        input=f"{line}\n",
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "F401" in answer.stdout, "the file was not linted at all"
    assert ("TID251" in answer.stdout) == banned
