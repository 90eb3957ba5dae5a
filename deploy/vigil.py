"""When a server counts as lost. Pure: told the time."""

ASK_EVERY_S = 0.5
SILENT_S = 2.5
"""A server that answers nothing for so long is stopped or hung; it is not coming back."""

LEAST_FAILURES = 2
"""A watcher that was itself stopped finds its last answer long ago, and asks again first."""


class Vigil:
    """Decides whether a server is lost, from whether it answers."""

    def __init__(self, now: float) -> None:
        self._answered_at = now
        self._asked_at = now
        self._failures = 0

    def is_due(self, now: float) -> bool:
        """The server should be asked again."""
        return now - self._asked_at >= ASK_EVERY_S

    def heard(self, asked_at: float, answered_at: float | None) -> None:
        """The server was asked, and answered or did not."""
        self._asked_at = asked_at
        if answered_at is None:
            self._failures += 1
        else:
            self._answered_at, self._failures = answered_at, 0

    def verdict(self, now: float, *, alive: bool) -> str | None:
        """Why the server has to be started again; None while it is well."""
        if not alive:
            return "its process has ended"
        silent_s = now - self._answered_at
        if silent_s >= SILENT_S and self._failures >= LEAST_FAILURES:
            return f"it has not answered for {silent_s:.1f} s"
        return None
