"""What a server group computes on its GPU. Pure but for looking for config files."""

from collections.abc import Iterator
from typing import Final

from deploy.pod.placing import ENGINES
from deploy.views import Models, View

FOLDER: Final = "/engines"
REPOSITORY: Final = f"{FOLDER}/model_repository"
"""That `python -m build tensorrt --repository` fills in a pod."""


def engines(models: Models, view: View) -> tuple[str, ...]:
    """Models whose engines the server of a view needs on a GPU; none: it computes on the CPU.

    `models`: with the plan's parameters.
    """
    return tuple(sorted({*_served(models, view), *_opened(models, view)}))


def _served(models: Models, view: View) -> Iterator[str]:
    """By a config of their own."""
    for name in view.own:
        if (models[name].folder / "configs" / f"{ENGINES}.pbtxt").exists():
            yield name


def _opened(models: Models, view: View) -> Iterator[str]:
    """By loops, in their own processes."""
    for name in view.own:
        if models[name].parameters.get("runtime") == ENGINES:
            yield from models[name].opens
