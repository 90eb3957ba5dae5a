"""Which version of each stage a turn goes to: one, from its first request to its last."""

import json
import os
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.versions import VARIABLE, Serving


class Versions:
    """Read again from its file whenever a turn begins; without a file each stage is served by the
    model of its name. For any thread."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._serving = Serving()
        self._seen: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self._open: dict[int, tuple[Serving, int]] = {}
        """By epoch: what its turns go to, and how many they are."""

    @classmethod
    def of_environment(cls) -> "Versions":
        """Of the file that the launcher names, if it does."""
        path = os.environ.get(VARIABLE)
        return cls(Path(path) if path else None)

    @contextmanager
    def pinned(self) -> Iterator[Serving]:
        """What serves now, for a turn that goes to nothing else while the block runs.

        Whoever changes the file and then finds no turn of an earlier epoch open will never see one
        again: the file is read and the turn counted at once.
        """
        with self._lock:
            now = self._read()
            self._count(now, 1)
        try:
            yield now
        finally:
            with self._lock:
                self._count(now, -1)

    def in_use(self, stages: Collection[str]) -> set[str]:
        """The models that serve these stages now, or to a turn that is still open."""
        with self._lock:
            every = [self._read(), *(serving for serving, _ in self._open.values())]
        return {name for serving in every for name in serving.names(stages)}

    def told(self, tensor: str = "EVENTS") -> Mapping[str, NDArray[Any]]:
        """`tensor` [1, 1]: {"epochs": {epoch: open turns}}, the answer to that order."""
        with self._lock:
            epochs = {str(epoch): turns for epoch, (_, turns) in self._open.items()}
        return {tensor: np.array([[json.dumps({"epochs": epochs}).encode()]], np.object_)}

    def _count(self, serving: Serving, more: int) -> None:
        turns = self._open.pop(serving.epoch, (serving, 0))[1] + more
        if turns:
            self._open[serving.epoch] = serving, turns

    def _read(self) -> Serving:
        """A file that is missing or cannot be read changes nothing."""
        if self._path is None:
            return self._serving
        try:
            found = self._path.stat()
            if (mark := (found.st_ino, found.st_mtime_ns)) != self._seen:
                self._serving = Serving.read(self._path)
                self._seen = mark
        except (OSError, ValueError):
            pass
        return self._serving
