"""When a draining server counts as drained. Pure: told the time."""

SETTLE_S = 1.0
"""Proxies look at the placement every 100 ms: by then none sends new turns to who is draining."""

LOOK_EVERY_S = 0.3
LOOKS = 2


class Drain:
    """Decides whether a draining server has nothing open any more."""

    def __init__(self, now: float, settle_s: float | None = None, looks: int = LOOKS) -> None:
        self._began_at = now
        self._settle_s = SETTLE_S if settle_s is None else settle_s
        self._looks = looks
        self._empty_looks = 0
        self.open_requests = 0

    def is_over(self, now: float, open_requests: int) -> bool:
        """Told what is open at each look: nothing at several in a row, and not too soon."""
        self.open_requests = open_requests
        settled = now - self._began_at >= self._settle_s
        self._empty_looks = self._empty_looks + 1 if settled and not open_requests else 0
        return self._empty_looks >= self._looks
