"""Parameters of the front door."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DoorSettings:
    """`ensemble` is relayed from `server`; a cancel is sent to every one of `stages`.

    `server` is overridden by the environment variable TRISTAGE_GRPC, which the launcher sets.
    """

    ensemble: str
    server: str
    stages: str
    no_progress_ms: int
    max_turns: int

    @property
    def stage_names(self) -> tuple[str, ...]:
        """`stages`, split at commas."""
        return tuple(name.strip() for name in self.stages.split(",") if name.strip())
