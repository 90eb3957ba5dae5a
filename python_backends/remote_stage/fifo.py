"""Requests of one turn are answered in the order in which they came."""

import asyncio
from types import TracebackType


class TurnFifo:
    """Hands out tickets; a ticket's time has come when all before it of the same turn are gone."""

    def __init__(self) -> None:
        self._last: dict[str, Ticket] = {}

    def enter(self, turn: str) -> "Ticket":
        """Stand in line, at once when a request arrives; the ticket is given back by leaving its
        `with` block."""
        ticket = Ticket(self, turn, self._last.get(turn))
        self._last[turn] = ticket
        return ticket

    def leave(self, ticket: "Ticket", before: "Ticket | None") -> None:
        """Whoever comes next stands behind the one `before`, if that is still there."""
        if self._last.get(ticket.turn) is not ticket:
            return
        if before is None:
            del self._last[ticket.turn]
        else:
            self._last[ticket.turn] = before

    def __len__(self) -> int:
        return len(self._last)


class Ticket:
    """One request's place among those of its turn."""

    def __init__(self, fifo: TurnFifo, turn: str, before: "Ticket | None") -> None:
        self.turn = turn
        self._fifo = fifo
        self._before = before
        self._gone = asyncio.Event()

    async def first(self) -> None:
        """Wait until everybody in front is gone."""
        while self._before is not None:
            await self._before._gone.wait()
            self._before = self._before._before

    def __enter__(self) -> "Ticket":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Those behind then wait for whoever is still in front of this one."""
        while self._before is not None and self._before._gone.is_set():
            self._before = self._before._before
        self._gone.set()
        self._fifo.leave(self, self._before)
