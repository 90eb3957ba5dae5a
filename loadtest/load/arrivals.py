"""When the turns of an open loop are meant to start, whatever happened to those before.

Offsets are ns from the start of the run, in order. A generator that waits for answers before it
sends again hides the queue it causes ("coordinated omission", Tene 2013); these never wait.
"""

import csv
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COLUMN = "start_s"


def poisson(rate: float, seed: int) -> Iterator[int]:
    """Arrivals without memory, `rate` a second on average; the same ones for the same seed."""
    draw = random.Random(seed)
    at_s = 0.0
    while True:
        at_s += draw.expovariate(rate)
        yield round(at_s * 1e9)


def read_trace(path: Path) -> list[int]:
    """The recorded starts in a file, in order.

    JSON: a list of seconds, or of objects with `start_s`. CSV: a column `start_s` among others, or
    one column of seconds without a heading. ValueError, which names the entry, for anything else.
    """
    entries = _from_json(path) if path.suffix == ".json" else _from_csv(path)
    if not entries:
        raise ValueError(f"{path}: no starts in it")
    return sorted(_offset_ns(entry, f"{path}, entry {at}") for at, entry in enumerate(entries, 1))


def _from_json(path: Path) -> list[Any]:
    entries = json.loads(path.read_text())
    if not isinstance(entries, list):
        raise ValueError(f"{path}: a list of starts is accepted")
    return [entry.get(COLUMN) if isinstance(entry, dict) else entry for entry in entries]


def _from_csv(path: Path) -> list[str]:
    with path.open(newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    if not rows:
        return []
    if COLUMN in rows[0]:
        column = rows[0].index(COLUMN)
        return [row[column] if column < len(row) else "" for row in rows[1:]]
    if len(rows[0]) > 1:
        raise ValueError(f"{path}: a column named {COLUMN} is needed")
    return [row[0] for row in rows]


def _offset_ns(entry: Any, where: str) -> int:
    try:
        seconds = float(entry)
    except (TypeError, ValueError) as fault:
        raise ValueError(f"{where}: {entry!r} is not a number of seconds") from fault
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{where}: {seconds} is not a time after the start")
    return round(seconds * 1e9)
