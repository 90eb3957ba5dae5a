"""Keeps one server serving: its dead stages are brought back, and so is all of it.

::

    with Server(Settings()) as server, keeping(server, tell) as keeper:
        keeper.wait()
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from deploy.errors import DeployError, ServerFailed
from deploy.launcher import Server
from deploy.readiness import probing
from deploy.vigil import Vigil
from deploy.watchdog import TICK_S as STUB_TICK_S
from deploy.watchdog import Tell, Watchdog

TICK_S: Final = 0.1
LIVE_TIMEOUT_S: Final = 1.0
JOIN_S: Final = 1.0
FIRST_BACK_OFF_S: Final = 1.0
MOST_BACK_OFF_S: Final = 30.0


class Keeper:
    """Three threads from `watch` to `leave`: one looks after the server, one after its stages, one
    after the length of its log.

    The server itself may end by a stage's death: a process that is killed while it holds a lock of
    shared memory lets whoever locks it next throw, and the server (2.51) does not catch that.
    `starts` bounds how many servers start at once. After `attempts` starts that failed one after
    another it gives up (None: never).
    """

    def __init__(
        self,
        server: Server,
        tell: Tell,
        starts: threading.Semaphore | None = None,
        attempts: int | None = None,
    ) -> None:
        self.server = server
        self.draining = False
        """It is not started again if it ends now."""

        self.restarts = 0
        self.phase = "starting"
        """ "starting", "ready", "down" or "stopped"."""

        self._tell = tell
        self._starts = starts or threading.Semaphore()
        self._attempts = attempts
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._given_up: tuple[int, str] | None = None
        """After so many restarts the server could not bring a model back, and why."""

    def start(self) -> None:
        """Start the server; see Server.start for what it may raise."""
        with self._starts:
            if self._closing.is_set():
                raise ServerFailed("the server is being stopped")
            self.server.start()
        self.phase = "ready"
        self._tell("ready", f"ready in {self.server.start_s:.1f} s")

    def watch(self) -> None:
        """Begin to look after a server that is started; what dies from now on is brought back."""
        self.phase = "ready"
        known = threading.Event()
        for task in (self._watch, lambda: self._watch_stubs(known), self._bound_log):
            thread = threading.Thread(
                target=self._for_ever, args=[task], name="keeper", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        known.wait(LIVE_TIMEOUT_S)

    def wait(self) -> None:
        """Until it is left, or has given up."""
        self._ended.wait()

    def abandon(self) -> None:
        """Let a start that is under way fail."""
        self._closing.set()
        self.server.stop()

    def leave(self) -> None:
        """Look after the server no longer; one that is being started again is stopped."""
        self._closing.set()
        if self.phase != "ready":
            self.server.stop()
        self._join(None)
        self._ended.set()

    def close(self) -> None:
        """End the server, whatever is being done with it."""
        self._closing.set()
        self._join(JOIN_S)
        self.server.stop()
        self.leave()
        self.server.stop()  # one that was being started again meanwhile
        self.phase = "stopped"

    def _join(self, timeout_s: float | None) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    def _for_ever(self, task: Callable[[], None]) -> None:
        """Whatever goes wrong in it, a server is watched until it is closed."""
        while not self._closing.is_set():
            try:
                task()
                return
            except Exception as bug:
                self._tell("failed", f"supervision went wrong and goes on: {bug!r}")
                self._closing.wait(FIRST_BACK_OFF_S)

    def _watch(self) -> None:
        while (reason := self._until_lost()) is not None:
            self.phase = "down"
            self._tell("down", reason)
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
                if reason := vigil.verdict(time.monotonic(), alive=self.server.alive):
                    return reason
                if self._given_up and self._given_up[0] == self.restarts:
                    return self._given_up[1]
        return None

    def _bring_back(self) -> None:
        """Start it again, as often as is allowed."""
        began, back_off_s, failed = time.monotonic(), FIRST_BACK_OFF_S, 0
        while not self._closing.is_set():
            self.restarts += 1
            try:
                with self._starts:
                    if self._closing.is_set():
                        return
                    self.server.restart()
            except (DeployError, OSError) as failure:
                failed += 1
                if not self._closing.is_set():
                    self._tell("failed", str(failure))
                if failed == self._attempts:
                    self._closing.set()
                    self._ended.set()
                self._closing.wait(back_off_s)
                back_off_s = min(2 * back_off_s, MOST_BACK_OFF_S)
            else:
                self.phase = "ready"
                took_s = time.monotonic() - began
                self._tell("back", f"back after {took_s:.1f} s; its log: {self.server.log.path}")
                return

    def _watch_stubs(self, known: threading.Event) -> None:
        while not self._closing.is_set():
            restarts = self.restarts
            if self.phase == "ready":
                try:
                    self._keep_stubs(restarts, known)
                except ServerFailed as failure:
                    self._given_up = restarts, str(failure)
            self._closing.wait(TICK_S)

    def _keep_stubs(self, restarts: int, known: threading.Event) -> None:
        """Until the server is another one. `known` is set once its processes are."""
        with probing(self.server.grpc_address, self.server.access) as probe:
            watchdog = Watchdog(self.server, probe, self._tell)
            known.set()
            while self.phase == "ready" and self.restarts == restarts:
                watchdog.look()
                watchdog.wait(STUB_TICK_S)
                if self._closing.is_set():
                    return

    def _bound_log(self) -> None:
        """Not while it starts: what it has told since then is asked for."""
        while not self._closing.wait(TICK_S):
            if self.phase == "ready":
                self.server.log.bound()


@contextmanager
def keeping(server: Server, tell: Tell, attempts: int | None = None) -> Iterator[Keeper]:
    """A started server is kept while the block runs."""
    keeper = Keeper(server, tell, attempts=attempts)
    keeper.watch()
    try:
        yield keeper
    finally:
        keeper.leave()
