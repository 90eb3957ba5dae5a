"""Which of our own source files a function depends on: its import closure in this repository."""

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_PACKAGES = ("build", "python_backends")
_NEUTRAL = {"build.fetch", "build.errors", "build.artifact", "build.contract"}
"""Modules that move or judge files: what they do cannot change an artefact's content."""


def code_of(function: Callable[..., Any]) -> list[Path]:
    """The file of `function` and every file of ours that it imports, directly or not, sorted."""
    start = Path(inspect.getfile(function)).resolve()
    found, waiting = {start}, [start]
    while waiting:
        for path in _imports(waiting.pop()) - found:
            found.add(path)
            waiting.append(path)
    return sorted(found)


@functools.cache
def _imports(path: Path) -> frozenset[Path]:
    """Files of ours that one file imports."""
    tree = ast.parse(path.read_text())
    names = {name for node in ast.walk(tree) for name in _named(node)}
    kept = {name for name in names if name.split(".")[0] in _PACKAGES and name not in _NEUTRAL}
    return frozenset(file for name in kept if (file := _file(name)) is not None)


def _named(node: ast.AST) -> Iterator[str]:
    """Modules that an import statement may mean."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _file(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return path if path.is_file() else None
