"""KV prefixes set aside: what a row held, so that the next turn of its session need not compute it.

All engines of one loop share a shelf, each on a thread of its own: entries are written once, then
only read, until they are dropped.
"""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

Held = Mapping[str, NDArray[Any]]


class Shelf:
    """Copies of the first tokens of rows, under keys that the loop gives."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}

    def put(self, key: int, held: Held) -> None:
        """Set aside."""
        self._held[key] = held

    def get(self, key: int) -> Held | None:
        """What was set aside under `key`."""
        return self._held.get(key)

    def drop(self, key: int) -> None:
        """Forget an entry; one that is not there is forgotten already."""
        self._held.pop(key, None)
