"""A monolith in virtual time: its rule, one device, and the gap between rounds."""

from loadtest.baselines.monolith.turns import Chunk, Rule, Turn, Work, members
from loadtest.sim.clock import Clock, Device
from loadtest.sim.costs import Costs
from loadtest.sim.people import People, Talk


class Monolith:
    """Runs `rule`; with `gap_hidden` a round's host work overlaps the next round's passes."""

    def __init__(
        self, clock: Clock, rule: Rule, costs: Costs, device: Device, *, gap_hidden: bool
    ) -> None:
        self.people: People | None = None
        self._clock = clock
        self._rule = rule
        self._costs = costs
        self._device = device
        self._gap_hidden = gap_hidden
        self._idle = True

    def send(self, talk: Talk) -> None:
        """A turn arrives."""
        self._rule.join(Turn(talk))
        if self._idle:
            self._idle = False
            self._clock.at(self._clock.now, self._round)

    def _round(self) -> None:
        works = self._rule.plan()
        if not works:
            self._idle = True
            return
        begin = end = self._clock.now
        for work in works:
            end = self._run(work, end)
        host_s = self._costs.host_s(members(works))
        following = max(end, begin + host_s) if self._gap_hidden else end + host_s
        self._clock.at(end, lambda: self._deliver(self._rule.commit(works)))
        self._clock.at(following, self._round)

    def _run(self, work: Work, now: float) -> float:
        cost_s = self._costs.pass_s(work.stage, len(work.rows), work.factor)
        done = self._device.reserve(now, work.stage, len(work.rows), cost_s)
        for row in work.rows:
            row.turn.payload.stepped(work.stage, done.end)
        return done.end

    def _deliver(self, chunks: list[Chunk]) -> None:
        assert self.people is not None
        for chunk in chunks:
            self.people.heard(chunk.turn.payload)
            if chunk.ends_turn:
                self.people.answered(chunk.turn.payload)
