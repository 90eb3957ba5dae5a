"""Who speaks under which sequence id: the rules that the server has for sequences, and ours.

The server's: the first request of a sequence has START, a second START begins it anew, END is its
last, and after a while without a request it is forgotten. The model is not told of that, so what
it keeps must be forgotten by its own clock. Ours: an id belongs to who has started it. The server
would hand a stranger's sound under the same id to the same caller; here the stranger is refused.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")

Why = Literal["no_start", "taken", "full"]


@dataclass(frozen=True)
class Refused(Exception):
    """No START, and none before; somebody else's id; or no room for one more."""

    why: Why


@dataclass
class _Sequence(Generic[T]):
    item: T
    owner: str
    heard_s: float


class Sequences(Generic[T]):
    """At most `most` sequences, each an item of its owner; times are in s."""

    def __init__(self, *, most: int, idle_s: float) -> None:
        self.most = most
        self.idle_s = idle_s
        self._known: dict[Hashable, _Sequence[T]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, key: Hashable, owner: str, now: float, item: T) -> T | None:
        """START: `item` is what `key` stands for from now on; what it stood for before is over, and
        given back. Raises Refused; whoever has the id notices nothing then."""
        known = self._of(key, owner)
        if known is None and len(self._known) >= self.most:
            raise Refused("full")
        self._known[key] = _Sequence(item, owner, now)
        return known.item if known else None

    def go_on(self, key: Hashable, owner: str, now: float) -> T:
        """No START: what `key` stands for. Raises Refused."""
        known = self._of(key, owner)
        if known is None:
            raise Refused("no_start")
        known.heard_s = now
        return known.item

    def end(self, key: Hashable, item: T) -> None:
        """END, or it is over whatever its caller does; another item under the same key stays."""
        known = self._known.get(key)
        if known is not None and known.item is item:
            del self._known[key]

    def idle(self, now: float) -> list[T]:
        """Those of whom nothing has come for `idle_s`; they are forgotten."""
        keys = [key for key, one in self._known.items() if now - one.heard_s >= self.idle_s]
        return [self._known.pop(key).item for key in keys]

    def next_idle_s(self) -> float:
        """When the next one will have been idle for too long; infinity for none."""
        heard = (one.heard_s for one in self._known.values())
        return min(heard, default=float("inf")) + self.idle_s

    def _of(self, key: Hashable, owner: str) -> _Sequence[T] | None:
        known = self._known.get(key)
        if known is not None and known.owner != owner:
            raise Refused("taken")
        return known

    def check_integrity(self) -> None:
        """There are not too many."""
        assert len(self._known) <= self.most
