"""What may happen to the two versions of a stage that is being upgraded. Pure: told the time."""

import threading
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


class Recall:
    """Whether an upgrade is called off, which it can be until it has settled. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._called_off = self._settled = False

    def call_off(self) -> bool:
        """It is to be taken back; whether that is still possible."""
        with self._lock:
            self._called_off = not self._settled
            return self._called_off

    def refuse(self) -> None:
        """UpgradeFailed once it has been called off."""
        if self._called_off:
            raise UpgradeFailed("it was called off")

    def settle(self) -> None:
        """It can no longer be called off. UpgradeFailed when it has been."""
        with self._lock:
            self.refuse()
            self._settled = True


MOST_FAILED: Final = 1
MOST_FAILED_SHARE: Final = 0.05
RECENT_S: Final = 1.0
"""A version that is asked has answered within so long when its trial is over."""


@dataclass(frozen=True)
class Seen:
    """What has become of a version's requests, and whether its processes are those that were tried.

    `failed`: by a fault of its own; `ok`: answered otherwise.
    """

    ok: int
    failed: int
    alive: bool
    unanswered: int = 0
    """Refused for want of room, too late, or given up by their callers: also how those end that
    hang."""

    moved: int = 0
    """Answers that have begun, and steps that were computed: a long one may be all there is."""

    open: int = 0


class Trial:
    """The first turns of a version, for so long: it stays, or the one before comes back.

    `before`: what an earlier process of the same version has answered, which is told for ever. A
    version that is asked has to answer, so that the trial may last longer; one that answers nothing
    for `patience_s` has failed.
    """

    def __init__(self, began: float, seconds: float, before: Seen, patience_s: float) -> None:
        self._until = began + seconds
        self._patience_s = patience_s
        self._before = self._last = before
        self._well_at = began
        self._has_answered = False

    def stays(self, now: float, seen: Seen) -> bool:
        """Whether it has stood the trial; UpgradeFailed with the reason when it has not."""
        if not seen.alive:
            raise UpgradeFailed("its process has ended")
        self._refuse_failures(seen)
        asked = self._note(now, seen)
        silent_s = now - self._well_at
        if silent_s >= self._patience_s:
            raise UpgradeFailed(
                f"it has answered nothing for {silent_s:.0f} s: {seen.open} requests are open, "
                f"{seen.unanswered - self._last.unanswered} ended unanswered"
            )
        answers = self._has_answered and silent_s < RECENT_S
        return now >= self._until and (answers or not asked)

    def _refuse_failures(self, seen: Seen) -> None:
        failed = seen.failed - self._before.failed
        ended = seen.ok + seen.unanswered - self._before.ok - self._before.unanswered + failed
        if failed > max(MOST_FAILED, MOST_FAILED_SHARE * ended):
            raise UpgradeFailed(f"{failed} of its first {ended} requests failed")

    def _note(self, now: float, seen: Seen) -> bool:
        """Whether there is something that it should have answered. One that gave up is chance."""
        if (seen.ok, seen.moved) != (self._last.ok, self._last.moved):
            self._last, self._well_at, self._has_answered = seen, now, True
        asked = seen.open > 0 or seen.unanswered - self._last.unanswered > MOST_FAILED
        if not asked:
            self._well_at = now
        return asked
