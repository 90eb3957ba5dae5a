"""A graph under this machine's roofs: what it achieves, and what it is bound by. Pure.

The roofline model of Williams, Waterman and Patterson (2009, doi:10.1145/1498765.1498785) with
several kinds of operations: the least time that those of a graph need is the sum over the kinds of
operations by the peak rate of their kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from loadtest.stages.onnx_cost import KINDS, Cost

THRESHOLD = 0.35
"""A roof of which less than this is reached does not bound a graph: something beside it does."""

GIGA = 1e9


class Bound(StrEnum):
    """What keeps a graph, or a stage, from being faster."""

    COMPUTE = "compute"
    MEMORY = "memory"
    OVERHEAD = "overhead"
    """Kernel launches, small operators, and whatever is neither multiplied nor moved."""

    HOST = "host"
    """What is around the graphs takes longer than they do."""


@dataclass(frozen=True)
class Ceilings:
    """Peak rates of one thread on one core, per second."""

    operations: Mapping[str, float]
    """Kind -> operations/s."""

    memory: float
    """bytes/s from memory."""

    cache: float
    """bytes/s from the last-level cache."""

    cache_bytes: int
    """How much it holds."""

    def bytes_per_s(self, nbytes: int) -> float:
        """The roof over a graph that touches so many bytes, run again and again: what fits into the
        cache is in it. In a served turn other graphs run between, and may push it out."""
        return self.cache if nbytes <= self.cache_bytes else self.memory


@dataclass(frozen=True)
class Point:
    """A graph at given shapes, timed bare."""

    cost: Cost
    seconds: float
    ceilings: Ceilings

    @property
    def per_s(self) -> float:
        """Operations/s achieved, of all kinds."""
        return self.cost.total / self.seconds

    @property
    def bytes_per_s(self) -> float:
        """bytes/s, if every byte moves once."""
        return self.cost.nbytes / self.seconds

    @property
    def share_of_compute(self) -> float:
        """The least time that its operations need, by the time it takes."""
        peak = self.ceilings.operations
        least_s = sum(count / peak[kind] for kind, count in self.cost.operations.items())
        return least_s / self.seconds

    @property
    def share_of_memory(self) -> float:
        """The least time that its bytes need, by the time it takes."""
        return self.bytes_per_s / self.ceilings.bytes_per_s(self.cost.nbytes)

    @property
    def fits_in_cache(self) -> bool:
        """All that it touches stays in the last-level cache from run to run."""
        return self.cost.nbytes <= self.ceilings.cache_bytes

    @property
    def kind(self) -> str:
        """Of most of its operations' least time."""
        peak = self.ceilings.operations
        least_s = {kind: self.cost.operations[kind] / peak[kind] for kind in KINDS}
        return max(least_s, key=lambda kind: least_s[kind])

    @property
    def bound(self) -> Bound:
        """See `bound_by`."""
        return bound_by(self.share_of_compute, self.share_of_memory)


def bound_by(
    share_of_compute: float,
    share_of_memory: float,
    *,
    host_ms: float = 0.0,
    compute_ms: float = 1.0,
) -> Bound:
    """The rule. HOST where what is around the graphs (`host_ms`) exceeds them (`compute_ms`); else
    OVERHEAD where neither roof is reached to THRESHOLD; else whichever roof is nearer."""
    if host_ms > compute_ms:
        return Bound.HOST
    if max(share_of_compute, share_of_memory) < THRESHOLD:
        return Bound.OVERHEAD
    return Bound.COMPUTE if share_of_compute >= share_of_memory else Bound.MEMORY
