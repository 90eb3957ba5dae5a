"""What happened to the servers of a cluster."""

import time
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal[
    "ready", "down", "back", "lost", "reloaded", "failed", "added", "draining", "removed"
]
"""A server goes down and is back; a model of it is lost and reloaded."""


@dataclass(frozen=True)
class Event:
    """Something that happened to one server."""

    server: str
    """Name of the replica: "think-1"."""

    kind: Kind
    what: str
    """For a person."""

    at: float = field(default_factory=time.time)
    """Seconds since the epoch."""

    monotonic_ns: int = field(default_factory=time.monotonic_ns)
    """On the clock of spans and of the load generator."""
