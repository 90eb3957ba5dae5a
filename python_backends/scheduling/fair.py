"""Who is next: owners take turns, so that one with much to do does not keep the others waiting."""

from bisect import insort
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(order=True, frozen=True)
class _Place(Generic[T]):
    round: int
    number: int
    item: T = field(compare=False)
    owner: Hashable = field(compare=False)


class FairQueue(Generic[T]):
    """Items in rounds: in each every owner has one, in the order of arrival.

    Whoever comes now and had nothing in the round that is being served belongs to it, so it waits
    for one item of every other owner at most.
    """

    def __init__(self) -> None:
        self._places: list[_Place[T]] = []
        self._arrived = 0
        self._round = 0
        self._had: dict[Hashable, int] = {}

    def append(self, item: T, owner: Hashable) -> None:
        """Queue an item of `owner`."""
        turn = max(self._round, self._had.get(owner, -1) + 1)
        self._had[owner] = turn
        self._arrived += 1
        insort(self._places, _Place(turn, self._arrived, item, owner))

    def popleft(self) -> T:
        """Take the next one out; IndexError when there is none."""
        place = self._places.pop(0)
        if place.round > self._round:
            self._round = place.round
            self._had = {owner: last for owner, last in self._had.items() if last >= self._round}
        return place.item

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
        """Places are in order, and no owner has two in one round."""
        assert self._places == sorted(self._places)
        taken = Counter((place.owner, place.round) for place in self._places)
        assert all(count == 1 for count in taken.values())
