"""The placement file, which proxies read, and the state file, which people read."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deploy.errors import DeployError
from deploy.processes import start_time

PLACEMENT = "TRISTAGE_PLACEMENT"
"""The environment variable that names the placement file to proxies."""


@dataclass(frozen=True)
class ServerState:
    """One replica, as far as others need to know it."""

    name: str
    server: str
    """Its name in the plan."""

    stages: tuple[str, ...]
    proxies: tuple[str, ...]
    device: str | None
    grpc: str
    http: str
    metrics: str
    phase: str
    """starting, ready, down, stopped, or elsewhere: on another machine, watched by nobody here."""

    pid: int | None = None
    restarts: int = 0
    draining: bool = False
    log: str = ""
    tls: Mapping[str, str] = field(default_factory=dict)
    """Fields of the Access that it is reached with, without the admin key."""


@dataclass(frozen=True)
class ClusterState:
    """A cluster and the process that supervises it."""

    plan: str
    path: str
    front: str
    pid: int
    started: int
    control: str
    """The socket that the supervisor takes orders from."""

    servers: tuple[ServerState, ...]

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> "ClusterState":
        """DeployError when there is none."""
        try:
            found = json.loads(path.read_text())
            servers = [_server(given) for given in found.pop("servers")]
            return cls(**found, servers=tuple(servers))
        except FileNotFoundError as fault:
            raise DeployError(f"nothing is known of {path.stem!r}: {path} is missing") from fault
        except (OSError, ValueError, TypeError, KeyError) as fault:
            raise DeployError(f"{path} cannot be read: {fault!r}") from fault


def placement(
    stages: Iterable[str], servers: Iterable[ServerState]
) -> dict[str, dict[str, list[dict[str, str | bool]]]]:
    """Where each of `stages` is served, as python_backends/remote_stage reads it."""
    known = list(servers)
    return {
        "stages": {
            stage: [
                {"name": one.name, "address": one.grpc, "draining": one.draining}
                for one in known
                if stage in one.stages
            ]
            for stage in sorted(stages)
        }
    }


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Whoever reads the file finds the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(partial, path)


def state_path(out: Path, name: str) -> Path:
    return out / "cluster" / f"{name}.json"


def _server(given: dict[str, Any]) -> ServerState:
    lists = {key: tuple(given[key]) for key in ("stages", "proxies")}
    return ServerState(**given | lists)
