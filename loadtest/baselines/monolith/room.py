"""Who runs and who waits in front of a monolith. Pure."""

from collections import deque
from dataclasses import dataclass

from loadtest.baselines.monolith.turns import Turn, Work, rows


@dataclass(frozen=True)
class Limits:
    """The monolith's knobs.

    An admission is one encoder pass; a round has at most `admissions_per_round` of them and takes
    in at most max(admissions_per_round, encoder_batch) turns, so that with either knob at 8 a
    round admits 8: in 8 passes of one, or in one pass of 8. The profile's rule is 1 and 1.
    """

    max_running: int
    encoder_batch: int
    admissions_per_round: int

    def __post_init__(self) -> None:
        if min(self.max_running, self.encoder_batch, self.admissions_per_round) < 1:
            raise ValueError(
                "max_running, encoder_batch and admissions_per_round must be at least 1"
            )


class Room:
    """First come, first served; a turn runs from its admission to its last chunk."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting: deque[Turn] = deque()
        self.running: list[Turn] = []

    def admit(self) -> list[Work]:
        """Encoder passes of the next round. The head of the queue decides a pass's shape; those of
        its shape come along, wherever they wait."""
        limits = self.limits
        free = limits.max_running - len(self.running)
        most = min(free, max(limits.admissions_per_round, limits.encoder_batch))
        passes: list[Work] = []
        while self.waiting and most > 0 and len(passes) < limits.admissions_per_round:
            batch = self._same_shape(min(limits.encoder_batch, most))
            most -= len(batch)
            self.running += batch
            passes.append(Work("listen", rows(batch)))
        return passes

    def leave(self, turn: Turn) -> None:
        """Take a turn out, wherever it is."""
        for place in (self.running, self.waiting):
            if turn in place:
                place.remove(turn)

    def turns(self) -> list[Turn]:
        """Everybody running or waiting."""
        return [*self.running, *self.waiting]

    def check_integrity(self) -> None:
        """Nobody runs and waits, and the limit holds."""
        everybody = self.turns()
        assert len({id(turn) for turn in everybody}) == len(everybody)
        assert len(self.running) <= self.limits.max_running
        assert not any(turn.gone for turn in everybody)

    def _same_shape(self, size: int) -> list[Turn]:
        bucket = self.waiting[0].bucket
        batch = [turn for turn in self.waiting if turn.bucket == bucket][:size]
        for turn in batch:
            self.waiting.remove(turn)
        return batch
