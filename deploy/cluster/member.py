"""One replica of a cluster: a server that is kept."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from deploy.cluster.events import Kind
from deploy.cluster.files import ServerState
from deploy.keeper import Keeper
from deploy.launcher import Server
from deploy.views import View

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


class Member(Keeper):
    """A kept server with its place in a plan; `tell` is called with what happens."""

    def __init__(
        self, replica: Replica, server: Server, starts: threading.Semaphore, tell: Tell
    ) -> None:
        super().__init__(server, lambda kind, what: tell(self, cast(Kind, kind), what), starts)
        self.replica = replica

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
