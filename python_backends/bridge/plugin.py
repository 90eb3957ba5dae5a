"""Parts of a stage that a config.pbtxt names by import path: a user's own, or an emulated one."""

from importlib import import_module
from typing import Any


def is_path(name: str) -> bool:
    """`name` is an import path, not one of our own names."""
    return ":" in name


def load(path: str) -> Any:
    """The object at "package.module:attribute". ValueError says what could not be found."""
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as fault:
        raise ValueError(f"{path!r} cannot be imported: {fault}") from fault
