"""One replica: its server, and the two threads that keep it serving."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from deploy.cluster.events import Kind
from deploy.cluster.files import ServerState
from deploy.cluster.vigil import Vigil
from deploy.errors import DeployError, ServerFailed
from deploy.launcher import Server
from deploy.readiness import probing
from deploy.views import View
from deploy.watchdog import TICK_S as STUB_TICK_S
from deploy.watchdog import Watchdog

TICK_S = 0.1
LIVE_TIMEOUT_S = 1.0
JOIN_S = 1.0
FIRST_BACK_OFF_S = 1.0
MOST_BACK_OFF_S = 30.0

Tell = Callable[["Member", Kind, str], None]


@dataclass(frozen=True)
class Replica:
    """Which server of a plan a member is, and what it serves."""

    name: str
    server: str
    view: View
    device: str | None
    is_whole: bool = True
    """It has all stages that the plan gives to its server."""


class Member:
    """A server that is started again when it is lost, and whose dead stubs are brought back.

    `starts` bounds how many servers start at once; `tell` is called with what happens.
    """

    def __init__(
        self, replica: Replica, server: Server, starts: threading.Semaphore, tell: Tell
    ) -> None:
        self.replica = replica
        self.server = server
        self.draining = False
        self.restarts = 0
        self.phase = "starting"
        self._starts = starts
        self._tell = tell
        self._closing = threading.Event()
        self._given_up: tuple[int, str] | None = None
        """After so many restarts the server could not bring a model back, and why."""

        self._threads: list[threading.Thread] = []

    @property
    def state(self) -> ServerState:
        running = self.server.alive
        return ServerState(
            name=self.replica.name,
            server=self.replica.server,
            stages=self.replica.view.stages,
            proxies=self.replica.view.proxies,
            device=self.replica.device,
            grpc=self.server.grpc_address,
            http=self.server.http_address,
            metrics=self.server.metrics_address,
            phase=self.phase,
            pid=self.server.pid if running else None,
            restarts=self.restarts,
            draining=self.draining,
            log=str(self.server.log.path),
            tls=self.server.access.tls,
        )

    def start(self) -> None:
        """Start the server; see Server.start for what it may raise."""
        with self._starts:
            if self._closing.is_set():
                raise ServerFailed("the cluster is being stopped")
            self.server.start()
        self.phase = "ready"
        self._note("ready", f"ready in {self.server.start_s:.1f} s")

    def watch(self) -> None:
        """Begin to supervise it."""
        for task in (self._watch, self._watch_stubs):
            name = f"{task.__name__} {self.replica.name}"
            thread = threading.Thread(target=self._for_ever, args=[task], name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _for_ever(self, task: Callable[[], None]) -> None:
        """Whatever goes wrong in it, a server is watched until it is closed."""
        while not self._closing.is_set():
            try:
                task()
                return
            except Exception as bug:
                self._note("failed", f"supervision went wrong and goes on: {bug!r}")
                self._closing.wait(FIRST_BACK_OFF_S)

    def abandon(self) -> None:
        """Let a start that is under way fail."""
        self._closing.set()
        self.server.stop()

    def close(self) -> None:
        """End the server, whatever is being done with it."""
        self._closing.set()
        self._join(JOIN_S)
        self.server.stop()
        self._join(None)
        self.server.stop()  # one that was being started again meanwhile
        self.phase = "stopped"

    def _join(self, timeout_s: float | None) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    def _watch(self) -> None:
        while (reason := self._until_lost()) is not None:
            self.phase = "down"
            self._note("lost", reason)
            if self.draining:
                self.server.kill()
                return
            self._bring_back()

    def _until_lost(self) -> str | None:
        """Why the server has to be started again; None when that is not wanted any more."""
        vigil = Vigil(time.monotonic())
        with probing(self.server.grpc_address, self.server.access) as probe:
            while not self._closing.wait(TICK_S):
                now = time.monotonic()
                if vigil.is_due(now):
                    answered = probe.server_is_live(LIVE_TIMEOUT_S)
                    vigil.heard(now, time.monotonic() if answered else None)
                if self._given_up and self._given_up[0] == self.restarts:
                    return self._given_up[1]
                if reason := vigil.verdict(time.monotonic(), alive=self.server.alive):
                    return reason
        return None

    def _bring_back(self) -> None:
        """Start it again, for as long as it takes."""
        began, back_off_s = time.monotonic(), FIRST_BACK_OFF_S
        while not self._closing.is_set():
            self.restarts += 1
            try:
                with self._starts:
                    if self._closing.is_set():
                        return
                    self.server.restart()
            except (DeployError, OSError) as failure:
                if not self._closing.is_set():
                    self._note("failed", str(failure))
                self._closing.wait(back_off_s)
                back_off_s = min(2 * back_off_s, MOST_BACK_OFF_S)
            else:
                self.phase = "ready"
                self._note("back", f"back after {time.monotonic() - began:.1f} s")
                return

    def _watch_stubs(self) -> None:
        while not self._closing.wait(TICK_S):
            restarts = self.restarts
            if self.phase != "ready":
                continue
            try:
                self._keep_stubs(restarts)
            except ServerFailed as failure:
                self._given_up = restarts, str(failure)

    def _keep_stubs(self, restarts: int) -> None:
        """Until the server is another one."""
        with probing(self.server.grpc_address, self.server.access) as probe:
            watchdog = Watchdog(self.server, probe, self._tell_of_stub)
            while self.phase == "ready" and self.restarts == restarts:
                watchdog.look()
                watchdog.wait(STUB_TICK_S)
                if self._closing.is_set():
                    return

    def _tell_of_stub(self, kind: str, what: str) -> None:
        self._note(cast(Kind, kind), what)

    def _note(self, kind: Kind, what: str) -> None:
        self._tell(self, kind, what)
