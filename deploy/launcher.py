"""Start a tritonserver that is ready when we say so, and end it whatever happens.

::

    with Server(Settings(models=["turn"])) as server:
        client = InferenceServerClient(server.grpc_address)
"""

import asyncio
import atexit
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Any, Self

from deploy import backends, rehearsal, repositories, runs
from deploy.access import access_of
from deploy.budget import refuse_over
from deploy.command import CALLERS, leashed, server_command
from deploy.errors import ServerFailed
from deploy.figures import open_requests, read_metrics
from deploy.processes import ANY, LOCALHOST
from deploy.proxies import has_control
from deploy.readiness import Probe, can_be_probed, control_request, probe_request, probing
from deploy.server_log import ServerLog
from deploy.settings import LISTENERS, Ports, Settings
from deploy.spawner import spawn
from python_backends.versions import VARIABLE, Serving, version_of

STOP_GRACE_S = 3.0
POLL_S = 0.02
PROBE_TIMEOUT_S = 60.0
DOORS = ("front_door", "listening", "live_call")
"""Backends that people come in by."""

VERSIONS = "versions.json"
"""In the folder of a run: which version serves each stage, see `deploy.rolling`."""

DRAIN_TIMEOUT_S = 5.0
DRAIN_POLL_S = 0.1
STARTS = 3
"""Attempts with ports of our own choice: one may be lost between looking and binding."""

Progress = Callable[[str], None]


class Server:
    """One tritonserver with its stubs, from `start` to `stop`. A context manager, sync and async.

    It also ends with the process that started it; the next start of any server cleans up after a
    launcher that was killed.
    """

    def __init__(self, settings: Settings | None = None, progress: Progress | None = None) -> None:
        self.settings = settings or Settings()
        self.ports = self.settings.ports or Ports.free()
        self.access = access_of(self.settings)
        self.models: list[str] = []
        self.log = ServerLog()
        self.start_s = 0.0
        self.changing = threading.RLock()
        """Held by whoever loads or unloads a model of it."""

        self.replaced: dict[str, repositories.Model] = {}
        """Models that it serves in place of those of its settings, also when started again."""

        self._progress: Progress = progress or (lambda line: None)
        self._known: dict[str, repositories.Model] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._run: tuple[Path, str] | None = None

    @property
    def http_address(self) -> str:
        return f"{self._dialled('http')}:{self.ports.http}"

    @property
    def grpc_address(self) -> str:
        return f"{self._dialled('grpc')}:{self.ports.grpc}"

    @property
    def metrics_address(self) -> str:
        return f"{self._dialled('metrics')}:{self.ports.metrics}"

    def _dialled(self, purpose: str) -> str:
        host = self.settings.host_of(purpose)
        return LOCALHOST if host == ANY else host

    @property
    def pid(self) -> int:
        """Of tritonserver; RuntimeError when it was not started."""
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process.pid

    @property
    def shared_memory_prefix(self) -> str:
        """Regions of this server in /dev/shm begin so."""
        if self._run is None:
            raise RuntimeError("the server was not started")
        return self._run[1]

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def own_queues(self) -> list[str]:
        """Models that answer a probe at once, whatever they are busy with."""
        return [name for name in self.models if has_control(self._known[name].config)]

    @property
    def doors(self) -> list[str]:
        """Models that people come in by."""
        return [name for name in self.models if self._known[name].config.backend in DOORS]

    def start(self, *, rehearse: bool = True) -> Self:
        """Start, wait until every model has answered, return self.

        Without `rehearse` no whole turn is spoken, so that servers it would need may be away.
        Raises EnvironmentUnfit, PortBusy, RepositoryError, BytesUnfit or ServerFailed; nothing is
        left behind.
        """
        backends.require_stub_environment()
        runs.sweep(self.settings.out)
        began = time.monotonic()
        for attempt in range(1, STARTS + 1):
            try:
                self._start_once(rehearse)
                break
            except ServerFailed:
                retry = self.settings.ports is None and self.log.lost_a_port()
                self.stop()
                if not retry or attempt == STARTS:
                    raise
                self.ports = Ports.free()
            except BaseException:
                self.stop()
                raise
        self.start_s = time.monotonic() - began
        self._progress(f"{len(self.models)} models ready in {self.start_s:.1f} s")
        return self

    def drain(self, timeout_s: float) -> bool:
        """Have no more turns and calls taken, and wait for those that are there; whether all have
        ended in time. What does not answer meanwhile is asked again: doors, and figures. A server
        that has ended is waited for no longer."""
        doors, untold = self.doors, set(self.doors)
        deadline = time.monotonic() + timeout_s
        with probing(self.grpc_address, self.access) as probe:
            while self.alive and time.monotonic() < deadline:
                untold = {door for door in untold if not self._closes(door, probe, deadline)}
                still = None if untold else self.open_requests()
                if still is not None and not any(still.get(door) for door in doors):
                    return True
                time.sleep(DRAIN_POLL_S)
        return False

    def _closes(self, door: str, probe: Probe, deadline: float) -> bool:
        """A door has been told to take nothing more, and has answered."""
        order = control_request(self._known[door].config, {"drain": True})
        left_s = max(0.0, deadline - time.monotonic())
        try:
            probe.ask(order, min(DRAIN_TIMEOUT_S, left_s))
        except ServerFailed:
            return False
        return True

    def open_requests(self) -> dict[str, int] | None:
        """Stage -> requests that it has not answered to the end; None when it cannot be told now,
        as of a server that is too busy."""
        try:
            return open_requests(read_metrics(self.metrics_address))
        except (ServerFailed, HTTPException):
            return None

    def stop(self) -> int | None:
        """End the server and everything of it; its exit code, None when it was not running.

        Open requests get `exit_timeout_s`; then it is killed, since an open client stream or a dead
        stub would keep it for ever.
        """
        code = self._end_process()
        self._close_run()
        return code

    def kill(self) -> int | None:
        """End the server and everything of it at once, whatever is open; its exit code."""
        code = None
        if self._process is not None:
            self._process.kill()
            code = self._process.wait()
        self._close_run()
        return code

    def restart(self) -> Self:
        """Kill what is left of the server and start it again on the same ports. See `start`."""
        self.kill()
        self.settings = replace(self.settings, ports=self.ports)
        return self.start(rehearse=False)

    @property
    def known_names(self) -> list[str]:
        """All models of its repositories, loaded or not, by their own names."""
        return [name for name in self._known if not version_of(name)]

    def config(self, name: str) -> Any:
        """The ModelConfig that it serves `name` with."""
        return self.model(name).config

    def model(self, name: str) -> repositories.Model:
        """A model that it serves."""
        return self._known[name]

    @property
    def run(self) -> Path:
        """Its run directory; RuntimeError when it was not started."""
        if self._run is None:
            raise RuntimeError("the server was not started")
        return self._run[0]

    def take_up(self, *models: repositories.Model, loaded: bool = True) -> None:
        """Models that have been loaded meanwhile, and are looked after from now on; or models that
        others open."""
        self._known = self._known | {model.name: model for model in models}
        if loaded:
            self.models = sorted({*self.models, *(model.name for model in models)})

    def let_go(self, *names: str) -> None:
        """Models that are about to be unloaded: nobody is to bring them back."""
        self.models = [name for name in self.models if name not in names]

    def check(self, name: str, timeout_s: float = PROBE_TIMEOUT_S) -> None:
        """One real inference of a model; ServerFailed when it does not answer."""
        with probing(self.grpc_address, self.access) as probe:
            probe.infer(self._known[name].config, timeout_s)

    def reload(self, name: str) -> None:
        """Bring a model back whose stub died: the server itself never does."""
        with probing(self.grpc_address, self.access) as probe:
            probe.reload(name)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def _start_once(self, rehearse: bool) -> None:
        self.ports.require_free(self.settings.host)
        overrides = self.settings.overrides or {}
        known = repositories.read_models(
            self.settings.repositories, overrides, self.settings.config_name, self.settings.own
        )
        self._known = repositories.with_proxies(
            known | self.replaced, self.settings.proxies, self.settings.proxy_parameters
        )
        self.models = repositories.to_load(self._known, self.settings.models)
        refuse_over(self.settings.room, self.models, self._known)
        self._run = folder, prefix = runs.open_run(self.settings.out)
        self.log = ServerLog(runs.new_log(self.settings.out, folder.name))
        Serving().write(folder / VERSIONS)
        atexit.register(self._stop_at_exit, os.getpid())
        views = repositories.mirror(self._known.values(), folder / "repositories", overrides)
        served_by = backends.directory(folder / "backends", self.settings.backends)
        if self.settings.tls is not None and self.settings.tls.callers is not None:
            (folder / CALLERS).write_text(self.settings.tls.trusted)
        key = self.access.admin_key
        command = server_command(
            self.settings, self.ports, self.models, views, served_by, folder, prefix, key
        )
        own = {
            VARIABLE: str(folder / VERSIONS),
            **self.settings.environment,
            **self.access.environment(),
        }
        self._process = spawn(
            leashed(command, self.settings),
            backends.environment(os.environ, self.grpc_address, prefix, own),
            self.log.path,
        )
        if self._run is None:  # `stop` came in between, from another thread
            self._end_process()
            runs.close_run(folder, prefix)
            raise ServerFailed("the server was stopped while it was being started")
        self._wait_until_up()
        self._probe_models(rehearse)
        if self.log.lost_a_port():
            raise ServerFailed(self.log.account("the server lost a port to another process"))

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + self.settings.start_timeout_s
        shown = ""
        while not self._listens():
            if not self.alive:
                raise ServerFailed(self.log.account("the server ended while it was loading models"))
            if time.monotonic() > deadline:
                after = f"{self.settings.start_timeout_s:.0f} s"
                raise ServerFailed(self.log.account(f"the server was not ready after {after}"))
            line = self._loading()
            if line != shown:
                self._progress(line)
                shown = line
            time.sleep(POLL_S)

    def _listens(self) -> bool:
        """All ports are open, told by the log: another's server may answer on a port we lost."""
        off = {f"--allow-{purpose}=false" for purpose in LISTENERS}.intersection(
            self.settings.arguments
        )
        if self.log.listeners() < len(LISTENERS) - len(off):
            return False
        with probing(self.grpc_address, self.access) as probe:
            return probe.server_is_ready()

    def _loading(self) -> str:
        loaded = self.log.loaded()
        last = f" ({loaded[-1]})" if loaded else ""
        return f"loading models: {len(loaded)} of {len(self.models)}{last}"

    def _probe_models(self, rehearse: bool) -> None:
        """One real inference of every model: small ones first, then whole requests."""
        configs = [self._known[name].config for name in self.models]
        small = [probe_request(config) for config in configs if can_be_probed(config)]
        whole = rehearsal.requests(self.models) if rehearse else ()
        asked = [*small, *whole]
        with probing(self.grpc_address, self.access) as probe:
            for number, request in enumerate(asked, 1):
                self._progress(f"first inference: {number} of {len(asked)} ({request.model_name})")
                self._ask(probe, request)

    def _ask(self, probe: Probe, request: object) -> None:
        try:
            probe.ask(request, PROBE_TIMEOUT_S)
        except ServerFailed as failure:
            raise ServerFailed(self.log.account(str(failure))) from failure

    def _close_run(self) -> None:
        """Idempotent, and may be called by two threads: one that starts it, one that ends it."""
        run, self._run = self._run, None
        if run is not None:
            runs.close_run(*run)
        atexit.unregister(self._stop_at_exit)

    def _stop_at_exit(self, owner: int) -> None:
        """Not in a forked child, which inherits what its parent registered."""
        if os.getpid() == owner:
            self.stop()

    def _end_process(self) -> int | None:
        if self._process is None:
            return None
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(self.settings.exit_timeout_s + STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
