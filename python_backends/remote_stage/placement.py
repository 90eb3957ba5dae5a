"""The placement file: which servers serve a stage now. deploy writes it, proxies read it."""

import json
import os
from pathlib import Path

from python_backends.scheduling.replicas import Listed

VARIABLE = "TRISTAGE_PLACEMENT"


class Placement:
    """One stage's part of the file, read again whenever the file has changed."""

    def __init__(self, path: Path, stage: str) -> None:
        self._path = path
        self._stage = stage
        self._seen: tuple[int, int] | None = None

    @classmethod
    def named(cls, stage: str) -> "Placement":
        """Of the file that the environment names; ValueError when it names none."""
        path = os.environ.get(VARIABLE)
        if not path:
            raise ValueError(
                f"stage {stage!r} is to be served elsewhere, but the environment variable "
                f"{VARIABLE} names no placement file; start the server by `python -m deploy up`"
            )
        return cls(Path(path), stage)

    def changed(self) -> list[Listed] | None:
        """The replicas, if the file is another one than at the last look; else None.

        A file that is missing or cannot be read changes nothing: what was known goes on.
        """
        try:
            found = self._path.stat()
            if (mark := (found.st_ino, found.st_mtime_ns)) == self._seen:
                return None
            stages = json.loads(self._path.read_text())["stages"]
            listed = [_listed(entry) for entry in stages.get(self._stage, [])]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        self._seen = mark
        return listed


def _listed(entry: dict[str, object]) -> Listed:
    return Listed(str(entry["name"]), str(entry["address"]), bool(entry.get("draining", False)))
