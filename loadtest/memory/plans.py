"""How many turns are let in, or how many bytes each stage has: by peak, by average, by budgets."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from loadtest.memory.memory import Memory
from loadtest.memory.sizes import Lengths, Sizes
from loadtest.memory.world import CURVES, LISTEN, SPEAK, THINK, TURN, Gate, Turn, World
from loadtest.sim.costs import Costs
from python_backends.scheduling.bytes import ByteBudget, OverBudget

CALIBRATION_SEED: Final = 10_007
"""Of the runs that tell the average; none of those that are judged."""

CALIBRATION_TURNS: Final = 2000
WARM_UP: Final = 1000


class Counted:
    """So many turns at once, from the first stage to the last; stages take whoever comes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open = 0

    def admit(self, what: str, turn: Turn) -> bool:
        """Asks for a place only at the beginning."""
        if what != TURN:
            return True
        if self._open == self.most:
            return False
        self._open += 1
        return True

    def leave(self, what: str, turn: Turn) -> None:
        """Gives the place to the next one."""
        self._open -= what == TURN


class Budgeted:
    """Each stage admits by bytes of its own, at the most that the turn can become in it."""

    def __init__(self, budget: ByteBudget[str], sizes: Sizes, lengths: Lengths) -> None:
        self.budget = budget
        self._most_new = lengths.answer[1]
        self._sizes = sizes

    def admit(self, what: str, turn: Turn) -> bool:
        """Takes the bytes, or leaves the turn waiting; OverBudget where that would be for ever."""
        if what == TURN:
            return True
        try:
            self.budget.take(what, self._most(what, turn))
        except OverBudget as over:
            if over.never_fits:
                raise
            return False
        return True

    def leave(self, what: str, turn: Turn) -> None:
        """Gives them back."""
        if what != TURN:
            self.budget.give_back(what, self._most(what, turn))

    def _most(self, stage: str, turn: Turn) -> int:
        """Nobody knows how long the answer will be; its limit is known."""
        tokens = turn.length.prompt + self._most_new
        sizes = self._sizes
        most = {LISTEN: sizes.encoder_member, THINK: sizes.token * tokens, SPEAK: sizes.speech}
        return most[stage]


@dataclass(frozen=True)
class Plan:
    """A way to divide the memory, and what came of it in numbers."""

    name: str
    gate: Callable[[], Gate]
    """Makes a fresh one."""

    numbers: dict[str, int]
    """Turns, or bytes of each stage."""


def counted(name: str, most: int) -> Plan:
    """So many turns at once."""
    return Plan(name, lambda: Counted(most), {"turns": most})


def peak_turns(costs: Costs, sizes: Sizes, lengths: Lengths) -> int:
    """As many as fit if every stage is at its peak with all of them: a full pass, the longest turn
    in every row, everybody speaking."""
    return _most_at(costs, sizes, lengths.longest_kv * sizes.token + sizes.speech)


def own_peak_turns(costs: Costs, sizes: Sizes, lengths: Lengths) -> int:
    """As many as fit if a turn, which is in one stage at a time, is in the one that takes most."""
    return _most_at(costs, sizes, max(lengths.longest_kv * sizes.token, sizes.speech))


def _most_at(costs: Costs, sizes: Sizes, each: int) -> int:
    """The spike is that of the largest pass."""
    largest = costs.profile.stages[LISTEN].max_batch
    few = sizes.device // (each + sizes.encoder_member)
    return max(min(few, largest), (sizes.device - largest * sizes.encoder_member) // each)


def average_turns(
    costs: Costs, sizes: Sizes, lengths: Lengths, people: int, share: float = 1.0
) -> int:
    """As many as take, on average over time and if nothing ever fails, `share` of the memory."""
    low, high = 1, people
    while low < high:
        middle = (low + high + 1) // 2
        if _mean_bytes(costs, sizes, lengths, people, middle) <= share * sizes.device:
            low = middle
        else:
            high = middle - 1
    return low


def _mean_bytes(costs: Costs, sizes: Sizes, lengths: Lengths, people: int, most: int) -> float:
    memory = Memory(math.inf, CURVES)
    world = World(costs, sizes, lengths, Counted(most), memory, CALIBRATION_SEED)
    world.run(people, WARM_UP, CALIBRATION_TURNS)
    return memory.mean


def budgets(costs: Costs, sizes: Sizes, lengths: Lengths) -> dict[str, int]:
    """Bytes of each stage: the largest pass for the encoder; the rest in proportion to what a turn
    takes of each other stage, times its steps there, since the stages step in turns."""
    stages = costs.profile.stages
    spike = stages[LISTEN].max_batch * sizes.encoder_member
    left = max(0, sizes.device - spike)
    thinking = lengths.mean_reserved * sizes.token * stages[THINK].steps
    speaking = sizes.speech * stages[SPEAK].steps
    think = int(left * thinking / (thinking + speaking))
    return {LISTEN: spike, THINK: think, SPEAK: left - think}


def by_budgets(costs: Costs, sizes: Sizes, lengths: Lengths) -> Plan:
    """Each stage has its own bytes."""
    declared = budgets(costs, sizes, lengths)

    def gate() -> Budgeted:
        return Budgeted(ByteBudget(sizes.device, declared), sizes, lengths)

    return Plan("budgets", gate, declared)
