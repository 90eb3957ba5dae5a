"""The servers of a plan: started together, kept alive, and changed while they serve.

::

    with Cluster(Plan.read(Path("deployment.yaml"))) as cluster:
        client = InferenceServerClient(cluster.grpc_address)
        name = cluster.add_replica("think")
        cluster.remove_replica(name)
"""

import atexit
import os
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from deploy import runs
from deploy.cluster.blueprint import Blueprint
from deploy.cluster.control import Control
from deploy.cluster.events import Event
from deploy.cluster.files import ClusterState, state_path
from deploy.cluster.member import Member
from deploy.cluster.roster import Hear, Progress, Roster
from deploy.cluster.scaling import DRAIN_TIMEOUT_S, Scaling
from deploy.errors import DeployError, ServerFailed
from deploy.launcher import Server
from deploy.plan import Plan
from deploy.plan_check import Machine, read, to_start
from deploy.processes import SHARED_MEMORY
from deploy.readiness import probing
from deploy.settings import OUT
from python_backends.access import Access

AT_ONCE = 2
"""Servers that start at the same time: loading is bound by the CPU."""

OTHERS_TIMEOUT_S = 300.0
OTHERS_STEP_S = 0.2


class Cluster:
    """A deployment, from `start` to `stop`. A context manager.

    `models` are served to callers in place of the plan's; `only` some servers are started here, the
    others run on other machines. What happens is kept in `events` and told to `hear`, or else to
    `progress`.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        models: Sequence[str] | None = None,
        only: Collection[str] | None = None,
        out: Path = OUT,
        progress: Progress | None = None,
        hear: Hear | None = None,
    ) -> None:
        self.plan = plan if models is None else plan.model_copy(update={"models": list(models)})
        self.name = plan.name if only is None else f"{plan.name}@{'+'.join(sorted(only))}"
        self._only = only
        self._out = out
        self._progress: Progress = progress or (lambda line: None)
        self._roster = Roster(self.plan, self.name, out, self._progress, hear)
        self._starts = threading.Semaphore(AT_ONCE)
        self._run: tuple[Path, str] | None = None
        self._control: Control | None = None
        self._ended = threading.Event()

    @property
    def events(self) -> list[Event]:
        """What has happened to servers so far, the newest last."""
        return self._roster.events

    @property
    def servers(self) -> dict[str, Server]:
        """By the names of their replicas: "think-1"."""
        return {member.replica.name: member.server for member in self._roster.members}

    @property
    def state(self) -> ClusterState:
        """Every server, with its phase and restarts."""
        return self._roster.state

    @property
    def front(self) -> Server:
        """The server that callers talk to. DeployError when it was not started here."""
        for member in self._roster.members:
            if member.replica.server == self.plan.front:
                return member.server
        raise DeployError(f"the front ({self.plan.front}) was not started here")

    @property
    def grpc_address(self) -> str:
        """Of the front."""
        return self.front.grpc_address

    def start(self) -> Self:
        """Start every server, the front last, whose first turn goes through all of them.

        Raises what Server.start does, and PlanError; nothing is left behind then.
        """
        models = read(self.plan)
        chosen = to_start(self.plan, self._only, Machine())
        self._refuse_a_second()
        runs.sweep(self._out)
        self._run = folder, prefix = runs.open_run(self._out)
        self._ended.clear()
        atexit.register(self._stop_at_exit, os.getpid())
        try:
            placement = folder / "placement.json"
            blueprint = Blueprint(self.plan, models, self._out, placement, prefix)
            self._scaling = Scaling(blueprint, self._roster, self._starts)
            self._control = Control(SHARED_MEMORY / f"{prefix}control", self._ordered)
            others = tuple(blueprint.elsewhere(chosen))
            apart = frozenset(blueprint.called_apart)
            self._roster.open(placement, self._control.path, apart, others)
            for name in chosen:
                for _ in range(self.plan.servers[name].replicas):
                    self._roster.add(self._scaling.recruit(blueprint.whole(name), {}))
            self._start_members()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every server and everything of it, the front first."""
        self._ended.set()
        if self._control is not None:
            self._control.close()
        members = self._roster.close()
        fronts = [one for one in members if one.replica.server == self.plan.front]
        for some in (fronts, [one for one in members if one not in fronts]):
            with ThreadPoolExecutor(len(some) or 1) as threads:
                list(threads.map(Member.close, some))
        run, self._run = self._run, None
        if run is not None:
            runs.close_run(*run)
        atexit.unregister(self._stop_at_exit)

    def _stop_at_exit(self, owner: int) -> None:
        """Not in a forked child, which inherits what its parent registered."""
        if os.getpid() == owner:
            self.stop()

    def wait(self) -> None:
        """Wait until somebody stops it."""
        self._ended.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def add_replica(
        self,
        what: str,
        *,
        environment: Mapping[str, str] | None = None,
        device: str | None = None,
    ) -> str:
        """One more of a server of the plan, or a server with one stage of it; its name.

        It gets turns once it is ready. `environment` wins over the plan's. PlanError when it can
        not be, ServerFailed when it did not start.
        """
        return self._scaling.add(what, environment or {}, device)

    def remove_replica(self, name: str, timeout_s: float = DRAIN_TIMEOUT_S) -> None:
        """Let a replica end what is open at it, give it nothing new, stop it.

        PlanError when it must stay; ServerFailed when it is not done in time, and then it gets
        turns again.
        """
        self._scaling.remove(name, timeout_s)

    def scale(self, what: str, count: int) -> None:
        """Add or remove replicas until `count` serve a stage, or are like a server of the plan."""
        self._scaling.scale(what, count)

    def _ordered(self, what: str, count: int, progress: Progress) -> None:
        """An order from the control socket; whoever gave it hears what is done."""
        with self._roster.heard_by(progress):
            self.scale(what, count)

    def _start_members(self) -> None:
        members = self._roster.members
        fronts = [one for one in members if one.replica.server == self.plan.front]
        self._start_together([one for one in members if one not in fronts])
        self._wait_for_others()
        for front in fronts:
            front.start()
        for member in members:
            member.watch()

    def _start_together(self, members: Sequence[Member]) -> None:
        """All of them; when one fails, or we are interrupted, the others are not waited for."""
        with ThreadPoolExecutor(len(members) or 1) as threads:
            starting = [threads.submit(member.start) for member in members]
            try:
                for one in starting:
                    one.result()
            except BaseException:
                for member in members:
                    member.abandon()
                raise

    def _wait_for_others(self) -> None:
        """Servers on other machines are started by others; the front's first turn needs them."""
        needed = [one for one in self._roster.elsewhere if one.server != self.plan.front]
        starts_front = any(one.replica.server == self.plan.front for one in self._roster.members)
        deadline = time.monotonic() + OTHERS_TIMEOUT_S
        for one in needed if starts_front else ():
            self._progress(f"waiting for {one.name} at {one.grpc}")
            with probing(one.grpc, Access(**one.tls)) as probe:
                while not probe.server_is_ready():
                    if time.monotonic() > deadline:
                        raise ServerFailed(f"{one.name} at {one.grpc} does not answer")
                    time.sleep(OTHERS_STEP_S)

    def _refuse_a_second(self) -> None:
        path = state_path(self._out, self.name)
        if path.exists() and (found := ClusterState.read(path)).alive:
            raise DeployError(
                f"{self.name} is up already, by process {found.pid}; "
                "end it with: python -m deploy down"
            )
