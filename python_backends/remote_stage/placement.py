"""Which servers serve a stage now: a placement file, which deploy writes and proxies read."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from python_backends.remote_stage import resolved
from python_backends.scheduling.replicas import Listed

VARIABLE = "TRISTAGE_PLACEMENT"


class Source(Protocol):
    """Tells where the replicas of one stage are."""

    def changed(self) -> list[Listed] | None:
        """The replicas, if they are others than at the last look; else None. Never waits."""

    def close(self) -> None:
        """Nobody will look again."""


def source_of(
    stage: str, tell: Callable[[str], None], environment: Mapping[str, str] = os.environ
) -> Source:
    """As the environment says: a DNS name where it gives the stage one, else the placement file.

    ValueError when it names neither. `tell` takes what goes wrong later, in words.
    """
    names = resolved.named_stages(environment.get(resolved.VARIABLE, ""))
    if stage in names:
        return resolved.Resolved(names[stage], resolved.asking(environment), tell)
    return Placement.named(stage, environment)


class Placement:
    """One stage's part of the file, read again whenever the file has changed."""

    def __init__(self, path: Path, stage: str) -> None:
        self._path = path
        self._stage = stage
        self._seen: tuple[int, int] | None = None

    @classmethod
    def named(cls, stage: str, environment: Mapping[str, str] = os.environ) -> "Placement":
        """Of the file that the environment names; ValueError when it names none."""
        path = environment.get(VARIABLE)
        if not path:
            raise ValueError(
                f"stage {stage!r} is to be served elsewhere, but the environment variable "
                f"{VARIABLE} names no placement file, and {resolved.VARIABLE} no name for it; "
                "start the server by `python -m deploy up` or `pod`"
            )
        return cls(Path(path), stage)

    def changed(self) -> list[Listed] | None:
        """See Source. A file that is missing or cannot be read changes nothing: what was known goes
        on."""
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

    def close(self) -> None:
        """See Source."""


def _listed(entry: dict[str, object]) -> Listed:
    return Listed(str(entry["name"]), str(entry["address"]), bool(entry.get("draining", False)))
