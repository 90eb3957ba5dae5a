"""Parameters of the front door."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DoorSettings:
    """`ensemble` says which stages of `server` a turn goes through, and how they are joined. A
    cancel is sent to each of `stages`, parted by commas: those that have a queue.

    `server` is overridden by the environment variable TRISTAGE_GRPC, which the launcher sets.
    """

    ensemble: str
    server: str
    stages: str
    no_progress_ms: int
    """A request to a stage that answers nothing for so long has failed."""

    max_turns: int
    """Turns at work."""

    max_waiting: int
    """Turns in front of them."""

    hold_ms: int = 5000
    """So long a turn is held for a stage that is being started again, or has no room."""

    max_sessions: int = 1024
    """Conversations that are remembered for callers who send no HISTORY."""

    session_chars: int = 16_000
    session_s: int = 1800
    """How long, and for how many seconds since the last turn."""

    @property
    def stage_names(self) -> tuple[str, ...]:
        """`stages`, split at commas."""
        return tuple(name.strip() for name in self.stages.split(",") if name.strip())
