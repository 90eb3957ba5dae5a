"""Large inputs for a server on this host go by shared memory: written once, never sent.

A block is one request's; it is free again when the request has ended. Where there is no room the
tensors are sent as usual. See Triton's system shared memory extension.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MEMORY = Path("/dev/shm")
ALIGNMENT = 64


@dataclass(frozen=True)
class Place:
    """Where one tensor lies in a region."""

    region: str
    offset: int
    size: int


@dataclass(frozen=True)
class Block:
    """Bytes [start, end) of a region, and the tensors in it by name."""

    start: int
    end: int
    places: Mapping[str, Place]


class Region:
    """One file in /dev/shm of `size` bytes, removed with `close`."""

    def __init__(self, name: str, size: int, folder: Path = MEMORY) -> None:
        self.name = name
        self.size = size
        self._path = folder / name
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        os.ftruncate(self._file, size)
        self._taken: list[Block] = []

    @property
    def key(self) -> str:
        """As shm_open(3) takes it."""
        return f"/{self.name}"

    def put(self, tensors: Mapping[str, NDArray[Any]]) -> Block | None:
        """Write tensors side by side; None where no gap is large enough. To be given back."""
        sizes = {name: _aligned(values.nbytes) for name, values in tensors.items()}
        start = self._gap(sum(sizes.values()))
        if start is None:
            return None
        places, at = {}, start
        for name, values in tensors.items():
            if not self._write(np.ascontiguousarray(values), at):
                return None
            places[name] = Place(self.name, at, values.nbytes)
            at += sizes[name]
        block = Block(start, at, places)
        self._taken.append(block)
        self._taken.sort(key=lambda one: one.start)
        return block

    def give_back(self, block: Block) -> None:
        """The server has read it, or its answer is not wanted any more: one that has been stopped
        and goes on may then compute for nobody with what somebody else has put there."""
        self._taken.remove(block)

    def close(self) -> None:
        """Remove the file; a server that has mapped it keeps its mapping until it is told."""
        os.close(self._file)
        self._path.unlink(missing_ok=True)

    def check_integrity(self) -> None:
        """Blocks lie within the region and apart from each other."""
        ends = [0, *(block.end for block in self._taken)]
        starts = [*(block.start for block in self._taken), self.size]
        assert all(end <= start for end, start in zip(ends, starts, strict=True))

    def _write(self, values: NDArray[Any], at: int) -> bool:
        """False where the host has no memory left; a store into a mapping would kill us there."""
        try:
            return os.pwrite(self._file, values.data, at) == values.nbytes
        except OSError:
            return False

    def _gap(self, size: int) -> int | None:
        """The first place where `size` bytes are free."""
        at = 0
        for block in self._taken:
            if block.start - at >= size:
                return at
            at = block.end
        return at if self.size - at >= size else None


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
