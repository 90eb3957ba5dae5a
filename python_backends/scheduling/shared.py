"""Work that several asked for is done once.

Whoever asks first has it done; who asks for the same while it is under way waits for that, and all
get the one result. Nobody keeps a result: what is asked for later is done again.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
M = TypeVar("M")


class Shared(Generic[K, M]):
    """Who waits for which piece of work. Keys are equal where results would be."""

    def __init__(self) -> None:
        self.joined = 0
        """Members who found their work under way."""

        self._members: dict[K, list[M]] = {}

    def join(self, key: K, member: M) -> bool:
        """`member` asks for `key`. True: it is the first, and the work has to be begun."""
        members = self._members.setdefault(key, [])
        members.append(member)
        self.joined += len(members) > 1
        return len(members) == 1

    def leave(self, key: K, member: M) -> bool:
        """`member` wants it no longer. True: nobody does, and the work may be given up."""
        members = self._members[key]
        members.remove(member)
        if members:
            return False
        del self._members[key]
        return True

    def members(self, key: K) -> tuple[M, ...]:
        """Everybody who waits for `key`, the first to ask first."""
        return tuple(self._members.get(key, ()))

    def finish(self, key: K) -> list[M]:
        """The work is done: everybody who waits for it. Who asks from now on begins anew."""
        return self._members.pop(key)

    @property
    def under_way(self) -> int:
        """Pieces of work that somebody waits for."""
        return len(self._members)

    def check_integrity(self) -> None:
        """No work without somebody who waits, and nobody waits twice."""
        everybody = [id(member) for members in self._members.values() for member in members]
        assert all(self._members.values()), "work that nobody waits for was kept"
        assert len(everybody) == len(set(everybody)), "somebody waits twice"
