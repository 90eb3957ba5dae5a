"""A cluster without a tritonserver: servers that only say what they were told."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.cluster.blueprint import Blueprint
from deploy.cluster.member import Member
from deploy.cluster.roster import Roster
from deploy.cluster.scaling import Scaling
from deploy.errors import ServerFailed
from deploy.plan import Plan
from deploy.plan_check import read
from deploy.server_log import ServerLog
from deploy.settings import Ports, Settings
from python_backends.access import OPEN


class StandServer:
    """What a Member needs of deploy.launcher.Server. It starts at once; `failures` times it does
    not."""

    def __init__(self, settings: Settings, progress: Callable[[str], None]) -> None:
        self.settings = settings
        self.ports = settings.ports or Ports(1, 2, 3)
        self.models: list[str] = []
        self.own_queues: list[str] = []
        self.pid = 0
        self.log = ServerLog()
        self.start_s = 0.0
        self.alive = False
        self.failures = 0
        self.told: list[str] = []
        self.access = OPEN

    grpc_address = property(lambda self: f"{self.settings.host}:{self.ports.grpc}")
    http_address = property(lambda self: f"{self.settings.host}:{self.ports.http}")
    metrics_address = property(lambda self: f"{self.settings.host}:{self.ports.metrics}")

    def start(self) -> None:
        self._begin("start")

    def restart(self) -> None:
        self._begin("restart")

    def stop(self) -> None:
        self.alive = False
        self.told.append("stop")

    def kill(self) -> None:
        self.alive = False
        self.told.append("kill")

    def _begin(self, what: str) -> None:
        self.told.append(what)
        if self.failures:
            self.failures -= 1
            raise ServerFailed("it did not start")
        self.alive = True


class World:
    """A plan whose servers are StandServers, and all that happened to them."""

    def __init__(self, out: Path, servers: Mapping[str, Any], **more: Any) -> None:
        self.plan = Plan.model_validate(
            {"front": "front", "servers": {"front": {}, **servers}, **more}
        )
        self.said: list[str] = []
        self.open_requests: Sequence[int] = [0]
        """At each look at the figures; the last one stays."""

        self.remote_turns: Sequence[int] = [0]
        """What the front says of its turns at think-2, likewise."""

        self.at_a_look: Callable[[], object] = lambda: None
        self.out = out
        self.roster = Roster(self.plan, self.plan.name, out, self.said.append)
        self.blueprint = Blueprint(
            self.plan,
            read(self.plan),
            out,
            out / "placement.json",
            "tristage-test-",
            make=StandServer,  # type: ignore[arg-type]
        )
        starts = threading.Semaphore(2)
        self.scaling = Scaling(self.blueprint, self.roster, starts, self._metrics)

    def open(self) -> None:
        """All servers of the plan, started."""
        apart = frozenset(self.blueprint.called_apart)
        self.roster.open(self.out / "placement.json", self.out / "control", apart, ())
        for name, server in self.plan.servers.items():
            for _ in range(server.replicas):
                member = self.scaling.recruit(self.blueprint.whole(name), {})
                self.roster.add(member)
                member.start()
                member.watch()

    def close(self) -> None:
        for member in self.roster.close():
            member.close()

    def member(self, name: str) -> Member:
        found = self.roster.get(name)
        assert found is not None
        return found

    def server(self, name: str) -> StandServer:
        found: Any = self.member(name).server
        assert isinstance(found, StandServer)
        return found

    @property
    def names(self) -> list[str]:
        return [member.replica.name for member in self.roster.members]

    def kinds(self, name: str) -> list[str]:
        """What happened to a replica."""
        return [event.kind for event in self.roster.events if event.server == name]

    def _metrics(self, address: str) -> str:
        if address == self.server("front-1").metrics_address:
            now, *later = self.remote_turns
            self.remote_turns = later or [now]
            return f'tristage_remote_turns{{replica="think-2",stage="think"}} {now}\n'
        self.at_a_look()
        now, *later = self.open_requests
        self.open_requests = later or [now]
        return f'tristage_open_requests{{stage="think"}} {now}\n'
