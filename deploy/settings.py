"""What a server serves and where it listens."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy import backends, memory, processes
from deploy.tls import Tls

OUT = backends.ROOT / "out"
REPOSITORIES = (backends.ROOT / "model_repository", backends.ROOT / "ensemble")
LISTENERS = ("http", "grpc", "metrics")


@dataclass(frozen=True)
class Ports:
    """The three ports of a server."""

    http: int
    grpc: int
    metrics: int

    @classmethod
    def free(cls, taken: Collection[int] = ()) -> "Ports":
        """Ports that nobody uses now, none of `taken`."""
        return cls(*processes.free_ports(3, taken))

    def require_free(self, host: str = processes.LOCALHOST) -> None:
        """PortBusy, naming the first port that somebody uses."""
        for purpose in LISTENERS:
            processes.require_free(getattr(self, purpose), purpose, host)


@dataclass(frozen=True)
class Settings:
    """What a server serves, and how. Every field has a working default."""

    repositories: Sequence[Path] = REPOSITORIES
    own: Sequence[Path] = ()
    """Repositories whose models replace those of the same name, as `python -m build think --from`
    makes them."""

    models: Sequence[str] | None = None
    """Models to load, with all that they call; None is every model."""

    overrides: Mapping[str, Mapping[str, str]] | None = None
    """Model -> parameter -> value, e.g. {"think": {"engine": "in_process"}}."""

    ports: Ports | None = None
    """None: free ones."""

    config_name: str | None = None
    """Take configs/<name>.pbtxt of a model where there is one (--model-config-name)."""

    proxies: Collection[str] = ()
    """Models that are served elsewhere: a proxy of the same name stands for each."""

    proxy_parameters: Mapping[str, str] = field(default_factory=dict)
    """Of every proxy, where its defaults are not what is wanted."""

    host: str = processes.LOCALHOST
    """The address of this machine that the ports are opened on. With `tls`, HTTP stays on the
    loopback address: the server speaks it in plaintext only."""

    tls: Tls | None = None
    """Speak TLS over gRPC; None: plaintext."""

    admin_key: str | None = None
    """What the APIs that are not for callers ask for; empty: nothing, they are open. None: as
    TRISTAGE_ADMIN_KEY says (see `deploy.access`), by default a new one."""

    cores: Collection[int] = ()
    """CPU cores that the server and its stubs may use; none given: all."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """More environment variables of the server and its stubs; they win over our own."""

    backends: Sequence[Path] = ()
    """More folders of Python-based backends."""

    arguments: Sequence[str] = ()
    """More arguments for tritonserver."""

    bytes: int | None = None
    """What its models and the server itself may take, as they declare it; None: the memory of this
    machine, or of the cgroup that we are in."""

    out: Path = OUT
    start_timeout_s: float = 300.0
    exit_timeout_s: int = 5
    """How long a stop waits for open requests; an open client stream costs all of it."""

    @property
    def room(self) -> int:
        """Bytes that its models may declare in all."""
        return memory.machine_bytes() if self.bytes is None else self.bytes

    def host_of(self, purpose: str) -> str:
        """The address that a port is opened on. What callers say is never plaintext where it is to
        be TLS; /metrics tells nothing of it."""
        return processes.LOCALHOST if self.tls and purpose == "http" else self.host
