"""Parts of a plan as servers that can be started."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from deploy.access import access_of
from deploy.cluster.files import PLACEMENT, ServerState
from deploy.cluster.member import Replica
from deploy.errors import PlanError
from deploy.launcher import Server
from deploy.plan import Plan
from deploy.plan_check import CALLED_DIRECTLY
from deploy.settings import LISTENERS, Ports, Settings
from deploy.views import Models, called_apart, homes, view_of, views

BOARD = "TRISTAGE_BOARD"


class Blueprint:
    """Makes replicas of a plan's servers. Names are never used twice: proxies remember them.

    All servers have one admin key, and one certificate where the plan has any. `placement` is the
    file that proxies find their replicas in; shared memory begins with `prefix`. TlsUnfit when the
    plan's certificate does not do.
    """

    def __init__(
        self,
        plan: Plan,
        models: Models,
        out: Path,
        placement: Path,
        prefix: str,
        make: Callable[[Settings, Callable[[str], None]], Server] = Server,
    ) -> None:
        self.plan = plan
        self.models = models
        self.home = homes(plan, models)
        self.called_apart = called_apart(views(plan, models))
        self._out = out
        self._placement = placement
        self._prefix = prefix
        self._make = make
        self._tls = plan.tls_files()
        self._access = access_of(Settings(tls=self._tls))
        self._numbers: Counter[str] = Counter()

    def whole(self, server: str, device: str | None = None) -> Replica:
        """One more server with all stages that the plan gives to `server`."""
        view = view_of(self.plan, self.models, server, self.home)
        return Replica(self._name(server), server, view, device or self.plan.servers[server].device)

    def part(self, server: str, stage: str, device: str | None = None) -> Replica:
        """A server with one of the stages that the plan gives to `server`."""
        if self.plan.servers[server].stages == [stage]:
            return self.whole(server, device)
        view = view_of(self.plan, self.models, server, self.home, [stage])
        device = device or self.plan.servers[server].device
        return Replica(self._name(stage), server, view, device, is_whole=False)

    def another(self, what: str, device: str | None) -> Replica:
        """One more of a server or stage by its name. PlanError when that cannot be."""
        if device is not None and device not in self.plan.devices:
            known = ", ".join(self.plan.devices) or "none"
            raise PlanError(f"no device {device!r}; devices: {known}")
        server = self.server_of(what)
        if server == self.plan.front:
            raise PlanError(f"{what!r} is in the front ({server}): {CALLED_DIRECTLY}")
        is_server = what in self.plan.servers
        return self.whole(server, device) if is_server else self.part(server, what, device)

    def server_of(self, what: str) -> str:
        """The plan's server that is named so, or that has a stage named so."""
        if what in self.plan.servers:
            return what
        if what not in self.home:
            known = ", ".join(sorted({*self.plan.servers, *self.home}))
            raise PlanError(f"no server or stage {what!r}; known: {known}")
        return self.home[what]

    def settings(self, replica: Replica, environment: Mapping[str, str]) -> Settings:
        """How its server is started; `environment` wins over the plan's."""
        plan, server = self.plan, self.plan.servers[replica.server]
        device = plan.devices.get(replica.device or "")
        return Settings(
            repositories=plan.folders(plan.repositories),
            own=plan.folders(plan.own),
            models=replica.view.loads,
            overrides=plan.overrides(),
            config_name=plan.config_name,
            ports=self._planned_ports(replica),
            proxies=replica.view.proxies,
            proxy_parameters=plan.remote,
            host=server.host,
            cores=tuple(device.cores) if device else (),
            environment={
                PLACEMENT: str(self._placement),
                **self._device_environment(replica.device),
                **server.environment,
                **environment,
            },
            backends=plan.folders(plan.backends),
            arguments=server.arguments,
            out=self._out,
            tls=self._tls,
            admin_key=self._access.admin_key,
        )

    def server(
        self,
        replica: Replica,
        environment: Mapping[str, str],
        taken: Iterable[Server],
        progress: Callable[[str], None],
    ) -> Server:
        """Its server, not started yet, on ports that none of `taken` has."""
        server = self._make(self.settings(replica, environment), progress)
        if server.settings.ports is None:
            used = {getattr(one.ports, purpose) for one in taken for purpose in LISTENERS}
            server.ports = Ports.free(used)
        return server

    def elsewhere(self, started: Collection[str]) -> Iterator[ServerState]:
        """The plan's servers on other machines: all but the `started` ones."""
        for name, server in self.plan.servers.items():
            for number in range(1, server.replicas + 1) if name not in started else ():
                ports = server.ports_of(number)
                assert ports is not None, "plan_check.to_start has seen to it"
                view = view_of(self.plan, self.models, name, self.home)
                yield ServerState(
                    name=f"{name}-{number}",
                    server=name,
                    stages=view.stages,
                    proxies=view.proxies,
                    device=server.device,
                    grpc=f"{server.host}:{ports.grpc}",
                    http=f"{server.host}:{ports.http}",
                    metrics=f"{server.host}:{ports.metrics}",
                    phase="elsewhere",
                    tls=self._access.tls,
                )

    def _name(self, base: str) -> str:
        self._numbers[base] += 1
        return f"{base}-{self._numbers[base]}"

    def _planned_ports(self, replica: Replica) -> Ports | None:
        """Ports of the plan go to the replicas that the plan knows of."""
        server = self.plan.servers[replica.server]
        base, _, number = replica.name.rpartition("-")
        planned = base == replica.server and int(number) <= server.replicas
        return server.ports_of(int(number)) if planned else None

    def _device_environment(self, device: str | None) -> dict[str, str]:
        """Servers on a device share the board of its running streams."""
        if device is None:
            return {}
        found = {BOARD: f"/dev/shm/{self._prefix}{device}-board"}
        if (gpu := self.plan.devices[device].gpu) is not None:
            found["CUDA_VISIBLE_DEVICES"] = str(gpu)
        return found
