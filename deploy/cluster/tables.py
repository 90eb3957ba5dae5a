"""Plans and clusters as tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rich.table import Table

from deploy.budget import needed_bytes
from deploy.cluster.files import ClusterState, ServerState
from deploy.plan import Plan
from deploy.repositories import with_overrides
from deploy.views import Models, View, views
from python_backends.sizes import told_bytes


@dataclass(frozen=True)
class Look:
    """What a server said when it was asked just now."""

    live: bool = False
    ready: bool = False
    open_requests: Mapping[str, int] = field(default_factory=dict)

    @property
    def word(self) -> str:
        if not self.live:
            return "[red]silent[/red]"
        return "[green]ready[/green]" if self.ready else "[yellow]live, not ready[/yellow]"


def plan_table(plan: Plan, models: Models, *, works: bool) -> Table:
    """What runs where. What a server loads is known only of a plan that works."""
    table = _table(
        f"plan {plan.name}: callers call {', '.join(plan.models)}",
        ("server", "replicas", "device", "address", "stages", "proxies", "memory"),
    )
    found = views(plan, with_overrides(models, plan.overrides())) if works else {}
    for name, server in plan.servers.items():
        view = found.get(name) or View(tuple(server.stages), (), ())
        table.add_row(
            f"[bold]{name}[/bold] (front)" if name == plan.front else name,
            str(server.replicas),
            server.device or "-",
            f"{server.host}:{server.ports.grpc}" if server.ports else server.host,
            ", ".join(view.stages) or "-",
            ", ".join(view.proxies) or "-",
            told_bytes(needed_bytes(plan, models, view)) if works else "",
        )
    return table


def status_table(name: str, state: ClusterState, looks: Mapping[str, Look]) -> Table:
    """What a cluster does now."""
    who = f"process {state.pid}" if state.alive else "[red]its supervisor is gone[/red]"
    table = _table(
        f"{name}: {who}", ("replica", "server", "gRPC", "stages", "open", "restarts", "pid")
    )
    for one in state.servers:
        look = looks.get(one.name, Look())
        table.add_row(
            f"[bold]{one.name}[/bold] (front)" if one.server == state.front else one.name,
            _word(one, look),
            one.grpc,
            ", ".join(one.stages) or "-",
            _open(look.open_requests),
            "-" if one.phase == "elsewhere" else str(one.restarts),
            str(one.pid or "-"),
        )
    return table


def _word(one: ServerState, look: Look) -> str:
    words = [look.word]
    if one.draining:
        words.append("draining")
    if one.phase in ("starting", "down", "elsewhere"):
        words.append({"down": "being started again"}.get(one.phase, one.phase))
    return ", ".join(words)


def _open(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{stage} {count}" for stage, count in counts.items() if count) or "0"


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
