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

    def is_over(self, now: float, open_requests: int | None) -> bool:
        """Told what is open at each look: nothing at several in a row, and not too soon. None: the
        look has failed, and nothing is known."""
        if open_requests is not None:
            self.open_requests = open_requests
        is_empty = now - self._began_at >= self._settle_s and open_requests == 0
        self._empty_looks = self._empty_looks + 1 if is_empty else 0
        return self._empty_looks >= self._looks
