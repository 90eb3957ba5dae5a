"""How far ahead of its caller's ears an answer may be sent.

Sound that is sent can't be taken back: what lies in a caller's buffer when they begin to speak was
computed, sent and thrown away, and on a slow line it is heard after all. So an answer stays at most
`lead_s` ahead of what has been played. What that is the caller may report; until they do, playing
is taken to begin when the first sound is sent, and to go on without a break.
"""

import math


class Pace:
    """Of one answer. Positions are s of its sound, `now` is s of any clock."""

    def __init__(self, lead_s: float) -> None:
        if not lead_s > 0:
            raise ValueError("lead_s must be positive")
        self.lead_s = lead_s
        self.sent_s = 0.0
        self._played_s = 0.0
        self._reported_s = 0.0
        self._since_s: float | None = None
        """Since when it has been playing from `_played_s` on; None: it does not play."""

        self._paused = False

    @property
    def paused(self) -> bool:
        """Nothing may be sent until it is resumed."""
        return self._paused

    def played_s(self, now: float) -> float:
        """How much has been played, as far as is known: never more than was sent."""
        if self._since_s is None:
            return self._played_s
        return min(self.sent_s, self._played_s + max(0.0, now - self._since_s))

    def may_send(self, now: float) -> bool:
        """One more chunk; a chunk may reach beyond the lead, but not begin there."""
        return not self._paused and self.sent_s - self.played_s(now) < self.lead_s

    def wait_s(self, now: float) -> float:
        """When `may_send` will be true if nothing else happens; infinity while it is paused."""
        if self._paused:
            return math.inf
        return max(0.0, self.sent_s - self.played_s(now) - self.lead_s)

    def sent(self, seconds: float, now: float) -> None:
        """So much more sound has been sent."""
        played_s = self.played_s(now)
        if self._since_s is None or played_s >= self.sent_s:  # it begins, or had run dry
            self._played_s, self._since_s = played_s, None if self._paused else now
        self.sent_s += seconds

    def reported(self, played_s: float, now: float) -> None:
        """The caller says so. Reports come late: an older one takes nothing back of a newer one."""
        self._reported_s = min(self.sent_s, max(self._reported_s, played_s))
        self._played_s = self._reported_s
        self._since_s = None if self._paused or not self.sent_s else now

    def pause(self, now: float) -> None:
        """The caller plays no more, and nothing is sent."""
        self._played_s, self._since_s, self._paused = self.played_s(now), None, True

    def resume(self, now: float) -> None:
        """Playing goes on where it stopped."""
        if self._paused:
            self._paused = False
            self._since_s = now if self.sent_s else None

    def left_s(self, now: float) -> float:
        """Sound that has been sent and not played."""
        return self.sent_s - self.played_s(now)

    def check_integrity(self) -> None:
        """Nothing is played that was not sent."""
        assert 0 <= self._reported_s <= self.sent_s
        assert 0 <= self._played_s <= self.sent_s + 1e-9
