"""Which replicas a DNS name stands for: what its answers make of those that were known. Pure: told
the time."""

from collections.abc import Mapping
from typing import Final

from python_backends.scheduling.replicas import KEEP_S, Listed

Addresses = frozenset[str]
Answers = Mapping[str, Addresses | None]
"""Record type ("A", "AAAA") -> the addresses there are now. None: nobody could tell, and what was
known of them goes on."""

LEAVING_S: Final = KEEP_S
"""An address that has left the name is listed as draining for so long, so that one that comes back
finds its turns and sessions; turns that last longer end well all the same (`Replicas`)."""


class Named:
    """The replicas behind one name, all on one port. Times are seconds on the caller's clock."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._known: dict[str, Addresses] = {}
        self._left_at: dict[str, float] = {}

    def heard(self, answers: Answers, now: float) -> list[Listed]:
        """Take one round of answers; the replicas as they are now, each named by its address."""
        before = self._present
        self._known |= {kind: found for kind, found in answers.items() if found is not None}
        present = self._present
        self._left_at |= dict.fromkeys(before - present, now)
        self._left_at = {
            address: left
            for address, left in self._left_at.items()
            if address not in present and now - left < LEAVING_S
        }
        return [
            Listed(name, name, draining=address in self._left_at)
            for address in sorted(present | self._left_at.keys())
            for name in [self._dialled(address)]
        ]

    @property
    def _present(self) -> Addresses:
        return frozenset().union(*self._known.values())

    def _dialled(self, address: str) -> str:
        return f"[{address}]:{self._port}" if ":" in address else f"{address}:{self._port}"
