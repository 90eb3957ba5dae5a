"""An emulated memory: who has how many bytes of it, over virtual time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

Sample = tuple[float, tuple[int, ...]]
"""When, and the bytes of every curve from then on."""


@dataclass
class Memory:
    """`total` bytes for the curves; whoever asks for more than is there gets nothing."""

    total: float
    """Infinite: how much would be taken."""

    curves: Sequence[str]
    now: float = 0.0
    used: dict[str, int] = field(init=False)
    peak: int = 0
    samples: list[Sample] | None = None
    """Every change since the measuring began; None: not kept."""

    _byte_s: float = 0.0
    _since: float = 0.0

    def __post_init__(self) -> None:
        self.used = dict.fromkeys(self.curves, 0)

    @property
    def in_use(self) -> int:
        """Bytes of all curves."""
        return sum(self.used.values())

    def take(self, curve: str, nbytes: int) -> bool:
        """Whether there was room."""
        if self.in_use + nbytes > self.total:
            return False
        self.used[curve] += nbytes
        self.peak = max(self.peak, self.in_use)
        self._changed()
        return True

    def give_back(self, curve: str, nbytes: int) -> None:
        """Bytes that the curve took."""
        assert 0 <= nbytes <= self.used[curve]
        self.used[curve] -= nbytes
        self._changed()

    def pass_time(self, until: float) -> None:
        """Nothing changes before `until`."""
        self._byte_s += self.in_use * (until - self.now)
        self.now = until

    def begin_measuring(self) -> None:
        """Forget what was before."""
        self._byte_s, self._since, self.peak = 0.0, self.now, self.in_use
        if self.samples is not None:
            self.samples.clear()
            self._changed()

    @property
    def measured_s(self) -> float:
        """How long it has been measured."""
        return self.now - self._since

    @property
    def mean(self) -> float:
        """Bytes in use, on average over the time that was measured."""
        return self._byte_s / self.measured_s if self.measured_s else math.nan

    def _changed(self) -> None:
        if self.samples is not None:
            self.samples.append((self.now, tuple(self.used.values())))
