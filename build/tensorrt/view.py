"""A model repository to serve engines from: links to ours, and folders of its own for engines.

The image's repository can then be read-only, and engines lie in a volume.
"""

from collections.abc import Iterable
from pathlib import Path

from build.artifact import REPOSITORY


def prepare(target: Path, own: Iterable[str]) -> Path:
    """Make `target` such a repository, or bring it up to date: models named `own` get a version
    folder that can be written to. Engines that lie there stay. Gives `target`."""
    owners = set(own)
    for folder in sorted(path for path in REPOSITORY.iterdir() if path.is_dir()):
        if folder.name in owners:
            _folder(folder, target / folder.name)
        else:
            _link(folder, target / folder.name)
    return target


def _folder(source: Path, target: Path) -> None:
    version = target / "1"
    version.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.name != "1":
            _link(path, target / path.name)
    for path in (source / "1").iterdir():
        if ".plan" not in path.suffixes:
            _link(path, version / path.name)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink():
        target.unlink()
    target.symlink_to(source)
