"""Who is next: owners take turns, so that one with much to do does not keep the others waiting."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

PATIENCE = 8
"""So many who came later may pass an item."""


@dataclass(eq=False)
class _Place(Generic[T]):
    item: T
    owner: Hashable
    rank: int
    """0 for an owner's first item, then one more than that of the last one waiting."""

    passed: int = 0


class FairQueue(Generic[T]):
    """First come, first served, but an owner's first item goes before others' second ones, those
    before third ones, and so on; each item is passed `PATIENCE` times at most."""

    def __init__(self) -> None:
        self._places: list[_Place[T]] = []

    def append(self, item: T, owner: Hashable) -> None:
        """Queue an item of `owner`."""
        rank = 1 + max((one.rank for one in self._places if one.owner == owner), default=-1)
        at = len(self._places)
        while at and self._gives_way(self._places[at - 1], rank):
            at -= 1
            self._places[at].passed += 1
        self._places.insert(at, _Place(item, owner, rank))

    def popleft(self) -> T:
        """Take the next one out; IndexError when there is none."""
        return self._places.pop(0).item

    def first(self) -> T | None:
        """Who is next."""
        return self._places[0].item if self._places else None

    def remove(self, item: T) -> bool:
        """Take an item out, wherever it stands; whether it was there."""
        for index, place in enumerate(self._places):
            if place.item is item:
                del self._places[index]
                return True
        return False

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[T]:
        return (place.item for place in self._places)

    def check_integrity(self) -> None:
        """Nobody was passed too often, and an owner's items are in the order of their arrival."""
        ranks: dict[Hashable, int] = {}
        for place in self._places:
            assert place.passed <= PATIENCE
            assert place.rank >= ranks.get(place.owner, 0)
            ranks[place.owner] = place.rank

    @staticmethod
    def _gives_way(place: _Place[T], rank: int) -> bool:
        return place.rank > rank and place.passed < PATIENCE
