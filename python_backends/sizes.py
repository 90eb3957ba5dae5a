"""Sizes in bytes as people write them: in a config.pbtxt, a plan, on a command line."""

import math
import re
from dataclasses import dataclass
from typing import Self

UNITS = {
    "": 1,
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def byte_count(given: object) -> int:
    """Bytes of 1048576, "512MiB" or "1.5 GiB". ValueError says what is accepted."""
    found = _SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    if found is None or found[2] not in UNITS:
        units = ", ".join(unit for unit in UNITS if unit)
        raise ValueError(f"a size is a number with one of {units}")
    return int(float(found[1]) * UNITS[found[2]])


def told_bytes(count: float) -> str:
    """A size for a person: "1.5 GiB"."""
    for unit in ("GiB", "MiB", "KiB"):
        if count >= UNITS[unit]:
            return f"{count / UNITS[unit]:.3g} {unit}"
    return f"{count:.0f} B"


@dataclass(frozen=True)
class RowBytes:
    """What each row of a batch takes while it is computed, by the rows' length: measured at some
    lengths, and at others as at the next longer one; beyond the last in proportion."""

    measured: tuple[tuple[int, int], ...]
    """Length and bytes, lengths rising. None at all: rows take nothing."""

    @classmethod
    def read(cls, text: str) -> Self:
        """From "1500=32MiB, 3000=160MiB". ValueError says what is accepted."""
        pairs = [pair.partition("=") for pair in text.split(",") if text]
        lengths = [int(length) if length.strip().isdecimal() else 0 for length, _, _ in pairs]
        if lengths != sorted(set(lengths)) or 0 in lengths:
            raise ValueError(f"{text!r} is not lengths with their bytes: 1500=32MiB, 3000=160MiB")
        sizes = [byte_count(size) for _, _, size in pairs]
        return cls(tuple(zip(lengths, sizes, strict=True)))

    def __call__(self, length: float) -> int:
        """Bytes of a row of this length."""
        for longest, nbytes in self.measured:
            if length <= longest:
                return nbytes
        longest, nbytes = self.measured[-1] if self.measured else (1, 0)
        return math.ceil(nbytes * length / longest)
