"""How long chunks took by the server's own figures: without the way there, and the generator.

It tells of ten of them every half second, drawn at random, so that shares are estimates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deploy.figures import Row

FIGURE: Final = "tristage_chunk_seconds"
BUCKET_S: Final = 0.01


@dataclass(frozen=True)
class Chunks:
    """Told of so far, and those that had been listened to within BUCKET_S of their coming."""

    count: float = 0.0
    within: float = 0.0

    @classmethod
    def of(cls, rows: Sequence[Row], stage: str) -> "Chunks":
        """What a stage tells; none where it has told nothing yet."""
        own = [row for row in rows if row.stage == stage]
        count = sum(row.value for row in own if row.name == f"{FIGURE}_count")
        buckets = [row for row in own if row.name == f"{FIGURE}_bucket"]
        within = sum(row.value for row in buckets if float(row.labels["le"]) == BUCKET_S)
        return cls(count, within)

    def __add__(self, other: "Chunks") -> "Chunks":
        return Chunks(self.count + other.count, self.within + other.within)

    def __sub__(self, before: "Chunks") -> "Chunks":
        return Chunks(self.count - before.count, self.within - before.within)

    @property
    def share(self) -> float | None:
        """Of those within; None where there are none."""
        return self.within / self.count if self.count else None
