"""What may happen to the two versions of a stage that is being upgraded. Pure: told the time."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from deploy.errors import UpgradeFailed


class Phase(StrEnum):
    """Of one version."""

    LOADING = "loading"
    SHADOW = "shadow"
    """Loaded and tried; no turn goes there."""

    SERVING = "serving"
    """Turns that begin go there."""

    DRAINING = "draining"
    """Turns that began there are ended by it; it can be switched back to."""

    GONE = "gone"


class Upgrade:
    """From the version `old`, which serves, to `new`. One of the two always serves.

    An event that cannot be now is a bug of whoever tells it: ValueError.
    """

    def __init__(self, old: int, new: int) -> None:
        self.old, self.new = old, new
        self.phases = {old: Phase.SERVING, new: Phase.LOADING}

    @property
    def serving(self) -> int:
        """The version that turns begin with now."""
        return next(one for one, phase in self.phases.items() if phase is Phase.SERVING)

    @property
    def draining(self) -> int | None:
        """The version whose last turns are waited for."""
        phases = self.phases.items()
        return next((one for one, phase in phases if phase is Phase.DRAINING), None)

    @property
    def over(self) -> bool:
        return Phase.GONE in self.phases.values()

    def loaded(self) -> None:
        """The new one is there."""
        self._move(self.new, Phase.LOADING, Phase.SHADOW)

    def switched(self) -> None:
        """The new one has stood its probes: turns begin there."""
        self._move(self.new, Phase.SHADOW, Phase.SERVING)
        self._move(self.old, Phase.SERVING, Phase.DRAINING)

    def failed(self) -> bool:
        """The new one does not do; whether turns had begun there, and are to end there."""
        if self.phases[self.new] in (Phase.LOADING, Phase.SHADOW):
            self.phases[self.new] = Phase.GONE
            return False
        self._move(self.old, Phase.DRAINING, Phase.SERVING)
        self._move(self.new, Phase.SERVING, Phase.DRAINING)
        return True

    def drained(self) -> None:
        """No turn is open, or will come back, at the one that is draining."""
        self._move(self.draining, Phase.DRAINING, Phase.GONE)

    def _move(self, version: int | None, since: Phase, to: Phase) -> None:
        if version is None or self.phases[version] is not since:
            raise ValueError(f"version {version} is not {since}: {self.phases}")
        self.phases[version] = to


MOST_FAILED: Final = 1
MOST_FAILED_SHARE: Final = 0.05


@dataclass(frozen=True)
class Seen:
    """Requests that a version has answered, and whether its processes are those that were tried."""

    ok: int
    failed: int
    alive: bool


class Trial:
    """The first turns of a version, for so long: it stays, or the one before comes back.

    `before`: what an earlier process of the same version has answered, which is told for ever.
    """

    def __init__(self, began: float, seconds: float, before: Seen) -> None:
        self._until = began + seconds
        self._before = before

    def stays(self, now: float, seen: Seen) -> bool:
        """Whether it has stood the trial; UpgradeFailed with the reason when it has not."""
        if not seen.alive:
            raise UpgradeFailed("its process has ended")
        failed = seen.failed - self._before.failed
        answered = seen.ok - self._before.ok + failed
        if failed > max(MOST_FAILED, MOST_FAILED_SHARE * answered):
            raise UpgradeFailed(f"{failed} of its first {answered} requests failed")
        return now >= self._until
