"""The monolith's one loop: plan a round, compute it, answer, prepare the next.

All passes of a round are ordered at once and run one behind the other, so that the device never
waits inside a round. Then comes the gap: real host work (answering, taking in, planning) counts
towards it, and only the rest of it is slept. With `gap_hidden` that work is done while the next
round is computed, which is what a tuned monolith would do.
"""

import math
import time
from collections.abc import Callable
from typing import Protocol

from loadtest.baselines.monolith.person import Person, arrived
from loadtest.baselines.monolith.settings import MonolithSettings
from loadtest.baselines.monolith.turns import Chunk, Rule, Turn, Work, members
from loadtest.device import Pass, SpanLog
from loadtest.device.sleep import sleep_until
from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Request
from python_backends.bridge.inbox import Event
from python_backends.errors import Cancelled, Overloaded, StageError

FIRST_GUESS_S = 2.0
"""A turn's duration before one was measured."""

SMOOTHING = 0.05


class Passes(Protocol):
    """The device."""

    def order(self, work: Work) -> Pass:
        """Submit a pass without waiting for it."""


class MonolithLoop:
    """Runs `rule` on `passes`; `gap_ms` is the host work of a round with so many turns in it."""

    def __init__(
        self,
        rule: Rule,
        passes: Passes,
        settings: MonolithSettings,
        gap_ms: Callable[[int], float],
        spans: SpanLog,
    ) -> None:
        self.rule = rule
        self._passes = passes
        self._settings = settings
        self._gap_ms = gap_ms
        self._spans = spans
        self._unsent: list[Chunk] = []
        self._due_ns = 0
        """When the host's work of the last round was over; 0 after a rest."""

        self._turn_s = FIRST_GUESS_S

    def run(self, inbox: Inbox) -> None:
        """Serve until closed; waits only when nobody is here."""
        while all(map(self._serve, inbox.take(0 if self.rule.turns() else None))):
            self.round()

    def round(self) -> None:
        """One round of everything for everybody."""
        self._drop_deserted()
        works = self.rule.plan()
        if not works:
            self._due_ns = 0
            return
        gap_ns = round(1e6 * self._gap_ms(members(works)))
        if self._settings.gap_hidden:
            self._overlapped(works, gap_ns)
        else:
            self._one_after_the_other(works, gap_ns)

    def _one_after_the_other(self, works: tuple[Work, ...], gap_ns: int) -> None:
        """Whatever the round took beyond its passes counts as host work, oversleeping included."""
        begin_ns = self._due_ns or time.monotonic_ns()
        ordered_ns = time.monotonic_ns()
        end_ns = self._order(works)
        sleep_until(end_ns)
        self._deliver(self.rule.commit(works))
        due_ns = begin_ns + (end_ns - ordered_ns) + gap_ns
        self._due_ns = max(due_ns, time.monotonic_ns())
        sleep_until(due_ns)
        self._spans.write("host", end_ns, self._due_ns, members(works))

    def _overlapped(self, works: tuple[Work, ...], gap_ns: int) -> None:
        """The host's work of the last round, beside the passes of this one."""
        begin_ns = time.monotonic_ns()
        end_ns = self._order(works)
        self._deliver(self._unsent)
        sleep_until(begin_ns + gap_ns)
        self._spans.write("host", begin_ns, time.monotonic_ns(), members(works))
        sleep_until(end_ns)
        self._unsent = self.rule.commit(works)
        if not self.rule.turns():
            self._deliver(self._unsent)
            self._unsent = []

    def _order(self, works: tuple[Work, ...]) -> int:
        """Submit a round; when its last pass ends."""
        end_ns = 0
        for work in works:
            done = self._passes.order(work)
            end_ns = done.end_ns
            for row in work.rows:
                _person(row.turn).computed(work.stage, row.piece, done)
        return end_ns

    def _deliver(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            person = _person(chunk.turn)
            try:
                person.send(chunk)
            except StageError as error:
                self._end(chunk.turn, error)
            if chunk.ends_turn:
                turn_s = (time.monotonic_ns() - person.admitted_ns) / 1e9
                self._turn_s += SMOOTHING * (turn_s - self._turn_s)

    def _serve(self, event: Event) -> bool:
        """Handle one event; False ends the loop."""
        match event:
            case Arrived(request):
                self._arrived(request)
            case CancelTurn(turn):
                for one in self.rule.turns():
                    if _person(one).request.turn == turn:
                        self._end(one, Cancelled("the turn was cancelled"))
            case Closed():
                return False
        return True

    def _arrived(self, request: Request) -> None:
        try:
            self._refuse_if_full()
            self.rule.join(arrived(request))
        except StageError as error:
            request.fail(error)

    def _refuse_if_full(self) -> None:
        waiting, limit = self.rule.waiting, self._settings.max_waiting
        if waiting >= limit:
            rounds = waiting / self._settings.max_running
            raise Overloaded(
                f"{waiting} turns wait for admission; at most {limit} may",
                retry_after_ms=math.ceil(1000 * rounds * self._turn_s),
            )

    def _drop_deserted(self) -> None:
        """Between rounds: turns whose caller is gone."""
        for turn in self.rule.turns():
            request = _person(turn).request
            if not request.is_open:
                self.rule.leave(turn)
            elif request.cancelled:
                self._end(turn, Cancelled("the caller has left"))

    def _end(self, turn: Turn, error: StageError) -> None:
        self.rule.leave(turn)
        _person(turn).request.fail(error)


def _person(turn: Turn) -> Person:
    person = turn.payload
    assert isinstance(person, Person)
    return person
