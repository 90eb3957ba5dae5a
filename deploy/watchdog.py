"""Brings back models whose stub has died or hangs inside a server that lives.

The server (2.51) notices neither: it calls such a model ready, and fails or forgets its requests.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final

from deploy.errors import ServerFailed
from deploy.launcher import Server
from deploy.readiness import Probe
from deploy.stubs import Stub, kill, stubs, wait_for_an_end
from python_backends.peer import AWAY

ASK_EVERY_S: Final = 2.0
ANSWER_TIMEOUT_S: Final = 3.0
"""A stage answers a probe on arrival, whatever it computes."""

LIVE_TIMEOUT_S: Final = 1.0
TICK_S: Final = 0.25
"""How often it is looked whether a stage is to be asked; an end is noticed at once."""

RELOADS: Final = 10
WITHIN_S: Final = 60.0
REST_S: Final = 20.0
"""A model that was reloaded `RELOADS` times within `WITHIN_S` is left alone for `REST_S`: what
kills it is still there, and each reload of a large model costs the others time."""

Tell = Callable[[str, str], None]
"""What happened ("lost", "reloaded", "failed"), and in words for a person."""


class RestartBudget:
    """How often a model may be brought back. Pure: told the time."""

    def __init__(self) -> None:
        self._reloads: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=RELOADS))
        self._rests_until: dict[str, float] = {}

    def take(self, model: str, now: float) -> bool:
        """It may be reloaded now, and is going to be."""
        if now < self._rests_until.get(model, now):
            return False
        done = self._reloads[model]
        if len(done) == RELOADS and now - done[0] < WITHIN_S:
            done.clear()
            self._rests_until[model] = now + REST_S
            return False
        done.append(now)
        return True

    def rests(self, model: str, now: float) -> bool:
        """It is left alone."""
        return now < self._rests_until.get(model, now)


class Watchdog:
    """Looks after the stubs of a server from one of its starts to its end."""

    def __init__(
        self,
        server: Server,
        probe: Probe,
        tell: Tell,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._probe = probe
        self._tell = tell
        self._clock = clock
        self._budget = RestartBudget()
        self._watched = tuple(server.models)
        self._stubs = stubs(server.pid, self._watched)
        self._asked_at = clock()
        self._owed: set[str] = set()
        """Models that we have unloaded and not brought back."""

    def wait(self, timeout_s: float) -> None:
        """Until there may be something to do."""
        wait_for_an_end([stub for stub in self._stubs if stub.alive], timeout_s)

    def look(self) -> None:
        """Reload what is dead or silent. ServerFailed when the server cannot."""
        self._follow_changes()
        sick = self._dead() or self._silent()
        if sick and self._probe.server_is_live(LIVE_TIMEOUT_S):
            self._reload(*sick)

    def _follow_changes(self) -> None:
        """Versions of stages come and go while the server runs; one that has gone is not missed."""
        if self._watched == (now := tuple(self._server.models)):
            return
        self._watched = now
        known = {stub.pid for stub in self._stubs}
        fresh = [one for one in stubs(self._server.pid, now) if one.pid not in known]
        self._stubs = [one for one in self._stubs if one.model in now] + fresh

    def _dead(self) -> tuple[str, str] | None:
        now = self._clock()
        for stub in self._stubs:
            if stub.alive or self._budget.rests(stub.model, now):
                continue
            ours = stub.model in self._owed or self._probe.model_is_ready(stub.model)
            if ours and not self._is_replaced(stub):
                return stub.model, "its process has ended"
        return None

    def _is_replaced(self, dead: Stub) -> bool:
        """Somebody else has loaded the model again; the dead one is forgotten."""
        fresh = stubs(self._server.pid, [dead.model])
        if fresh:
            self._stubs = [one for one in self._stubs if one is not dead and one not in fresh]
            self._stubs += fresh
        return bool(fresh)

    def _silent(self) -> tuple[str, str] | None:
        """The first model that does not answer a probe, and what came instead."""
        now = self._clock()
        if now - self._asked_at < ASK_EVERY_S:
            return None
        self._asked_at = now
        for model in self._server.own_queues:
            if self._budget.rests(model, now):
                continue
            if self._miss(model) and (reason := self._miss(model)):
                return model, reason
        return None

    def _miss(self, model: str) -> str:
        """Why a model did not answer; empty when it did, or is being loaded by somebody. Once is
        no proof: it may have been us who were stopped or starved meanwhile."""
        try:
            self._probe.infer(self._server.config(model), ANSWER_TIMEOUT_S)
        except ServerFailed as failure:
            return "" if AWAY.search(str(failure)) else str(failure)
        return ""

    def _reload(self, model: str, reason: str) -> None:
        began = self._clock()
        self._tell("lost", f"model {model!r}: {reason}")
        for stub in self._of(model):
            kill(stub)  # a hung one would hold the unloading of its model
        if not self._budget.take(model, began):
            self._tell(
                "failed",
                f"model {model!r} has been reloaded {RELOADS} times within {WITHIN_S:g} s and is "
                f"left alone for {REST_S:g} s",
            )
            return
        with self._server.changing:
            if model not in self._server.models:
                return
            self._owed.add(model)
            self._probe.reload(model)
            self._owed.discard(model)
        self._stubs = stubs(self._server.pid, self._server.models) + self._resting()
        self._tell("reloaded", f"model {model!r} is back after {self._clock() - began:.1f} s")

    def _of(self, model: str) -> list[Stub]:
        return [stub for stub in self._stubs if stub.model == model]

    def _resting(self) -> list[Stub]:
        """Dead ones that are to be brought back later."""
        now = self._clock()
        return [one for one in self._stubs if not one.alive and self._budget.rests(one.model, now)]
