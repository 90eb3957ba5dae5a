"""Brings back models whose stub has died or hangs inside a server that lives."""

import time
from collections.abc import Callable

from deploy.cluster.events import Kind
from deploy.cluster.stubs import Stub, kill, stubs
from deploy.errors import ServerFailed
from deploy.launcher import Server
from deploy.readiness import Probe

ASK_EVERY_S = 2.0
ANSWER_TIMEOUT_S = 3.0
"""A stage answers a probe on arrival, whatever it computes."""

LIVE_TIMEOUT_S = 1.0


class StubKeeper:
    """Looks after the stubs of a server from one of its starts to its end."""

    def __init__(
        self,
        server: Server,
        probe: Probe,
        tell: Callable[[Kind, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._probe = probe
        self._tell = tell
        self._clock = clock
        self._stubs = stubs(server.pid, server.models)
        self._asked_at = clock()

    def look(self) -> None:
        """Reload what is dead or silent. ServerFailed when the server cannot."""
        sick = self._dead() or self._silent()
        if sick and self._probe.server_is_live(LIVE_TIMEOUT_S):
            self._reload(*sick)

    def _dead(self) -> tuple[str, str] | None:
        for stub in self._stubs:
            if not stub.alive:
                return stub.model, "its process has ended"
        return None

    def _silent(self) -> tuple[str, str] | None:
        """The first model that does not answer a probe, and what came instead."""
        if self._clock() - self._asked_at < ASK_EVERY_S:
            return None
        self._asked_at = self._clock()
        for model in self._server.own_queues:
            if self._miss(model) and (reason := self._miss(model)):
                return model, reason
        return None

    def _miss(self, model: str) -> str:
        """Why a model did not answer; empty when it did. Once is no proof: it may have been us who
        were stopped or starved meanwhile."""
        try:
            self._probe.infer(self._server.config(model), ANSWER_TIMEOUT_S)
        except ServerFailed as failure:
            return str(failure)
        return ""

    def _reload(self, model: str, reason: str) -> None:
        began = self._clock()
        self._tell("lost", f"model {model!r}: {reason}")
        for stub in self._of(model):
            kill(stub)  # a hung one would hold the unloading of its model
        self._probe.reload(model)
        self._stubs = stubs(self._server.pid, self._server.models)
        self._tell("reloaded", f"model {model!r} is back after {self._clock() - began:.1f} s")

    def _of(self, model: str) -> list[Stub]:
        return [stub for stub in self._stubs if stub.model == model]
