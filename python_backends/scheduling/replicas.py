"""Which of several servers a turn goes to: the least loaded, and for all of a turn the same one.

A stage keeps its pieces in order and its KV cache warm, both inside one process: so whatever
belongs to a turn goes where the turn began, and a session goes back where it was as long as that
server has not much more to do than the least loaded.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

KEEP_S = 30.0
"""A turn that has asked for nothing for so long is over, even if nobody said so."""

SESSIONS = 4096
"""Sessions whose server is remembered."""

SLACK = 2
"""A session may go where so many more turns are than at the least loaded server."""


@dataclass(frozen=True)
class Listed:
    """A replica as the placement names it."""

    name: str
    address: str
    draining: bool = False


@dataclass(eq=False)
class Replica:
    """One server of a stage. `turns`: those that began there and are not over."""

    name: str
    address: str
    draining: bool = False
    lost: bool = False
    """It does not answer."""

    turns: int = 0
    chosen: int = 0
    """The number of the latest choice that fell on it, so that equals take turns."""


@dataclass
class _Turn:
    replica: Replica
    open: int = 0
    touched: float = 0.0
    over: bool = False


class Replicas:
    """The servers of one stage, and where each turn is. Times are seconds on the caller's clock."""

    def __init__(self) -> None:
        self._replicas: dict[str, Replica] = {}
        self._leaving: list[Replica] = []
        self._turns: OrderedDict[str, _Turn] = OrderedDict()
        self._sessions: OrderedDict[str, Replica] = OrderedDict()
        self._choices = 0

    def update(self, listed: Iterable[Listed]) -> None:
        """Take the placement as it is now. Who is no longer in it gets nothing new; one of the same
        name at another address is another replica."""
        wanted = {one.name: one for one in listed}
        for name, replica in list(self._replicas.items()):
            if name not in wanted or wanted[name].address != replica.address:
                self._leaving.append(self._replicas.pop(name))
        for name, one in wanted.items():
            known = self._replicas.setdefault(name, Replica(name, one.address))
            known.draining = one.draining

    def known(self) -> list[Replica]:
        """Those of the placement, and those that have left it with turns still there."""
        self._leaving = [replica for replica in self._leaving if replica.turns]
        return [*self._replicas.values(), *self._leaving]

    def enter(self, turn: str, session: str, now: float) -> Replica | None:
        """The server for one more request of a turn; None when there is none, or when the one that
        has the turn is lost. To be followed by `leave`."""
        self.forget(now)
        state = self._turns.get(turn)
        if state is None:
            replica = self._choose(session)
            if replica is None:
                return None
            state = self._begin(turn, replica)
        elif state.replica.lost:
            return None
        state.open += 1
        self._touch(turn, state, now)
        if session:
            self._remember(session, state.replica)
        return state.replica

    def leave(self, turn: str, now: float, *, over: bool) -> None:
        """A request has ended; `over`: no other one of the turn will come after those open."""
        state = self._turns.get(turn)
        if state is None:
            return
        state.open -= 1
        state.over = state.over or over
        self._touch(turn, state, now)
        self._end_if_over(turn, state)

    def end(self, turn: str) -> None:
        """The turn was cancelled; what is open of it is still to be left."""
        state = self._turns.get(turn)
        if state is not None:
            state.over = True
            self._end_if_over(turn, state)

    def check_integrity(self) -> None:
        """Every turn is counted at its server, once."""
        for replica in self.known():
            assert replica.turns == sum(one.replica is replica for one in self._turns.values())
        assert all(state.open >= 0 for state in self._turns.values())
        assert {id(state.replica) for state in self._turns.values()} <= set(map(id, self.known()))

    def _choose(self, session: str) -> Replica | None:
        usable = [one for one in self._replicas.values() if not (one.draining or one.lost)]
        if not usable:
            return None
        least = min(usable, key=lambda one: (one.turns, one.chosen))
        before = self._sessions.get(session) if session else None
        if before in usable and before.turns <= least.turns + SLACK:
            return before
        return least

    def _begin(self, turn: str, replica: Replica) -> _Turn:
        replica.turns += 1
        self._choices += 1
        replica.chosen = self._choices
        self._turns[turn] = _Turn(replica)
        return self._turns[turn]

    def _touch(self, turn: str, state: _Turn, now: float) -> None:
        state.touched = now
        self._turns.move_to_end(turn)

    def _remember(self, session: str, replica: Replica) -> None:
        self._sessions[session] = replica
        self._sessions.move_to_end(session)
        while len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)

    def forget(self, now: float) -> None:
        """Let go of turns that nobody has asked for in a while."""
        while self._turns:
            turn, state = next(iter(self._turns.items()))
            if now - state.touched < KEEP_S:
                return
            if state.open:
                self._touch(turn, state, now)
            else:
                self._end(turn)

    def _end_if_over(self, turn: str, state: _Turn) -> None:
        if state.over and not state.open:
            self._end(turn)

    def _end(self, turn: str) -> None:
        self._turns.pop(turn).replica.turns -= 1
