"""What a server serves and where it listens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy import backends, processes

OUT = backends.ROOT / "out"
REPOSITORIES = (backends.ROOT / "model_repository", backends.ROOT / "ensemble")
LISTENERS = ("http", "grpc", "metrics")


@dataclass(frozen=True)
class Ports:
    """The three ports of a server, on loopback."""

    http: int
    grpc: int
    metrics: int

    @classmethod
    def free(cls) -> "Ports":
        """Ports that nobody uses now."""
        return cls(*processes.free_ports(3))

    def require_free(self) -> None:
        """PortBusy, naming the first port that somebody uses."""
        for purpose in LISTENERS:
            processes.require_free(getattr(self, purpose), purpose)


@dataclass(frozen=True)
class Settings:
    """What a server serves, and how. Every field has a working default."""

    repositories: Sequence[Path] = REPOSITORIES
    models: Sequence[str] | None = None
    """Models to load, with all that they call; None is every model."""

    overrides: Mapping[str, Mapping[str, str]] | None = None
    """Model -> parameter -> value, e.g. {"think": {"engine": "in_process"}}."""

    ports: Ports | None = None
    """None: free ones."""

    config_name: str | None = None
    """Take configs/<name>.pbtxt of a model where there is one (--model-config-name)."""

    backends: Sequence[Path] = ()
    """More folders of Python-based backends."""

    arguments: Sequence[str] = ()
    """More arguments for tritonserver."""

    out: Path = OUT
    start_timeout_s: float = 300.0
    exit_timeout_s: int = 5
    """How long a stop waits for open requests; an open client stream costs all of it."""
