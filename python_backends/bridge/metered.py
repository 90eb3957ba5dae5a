"""A request that tells how long its caller waited, and how it ended."""

from collections.abc import Callable
from typing import Any

from python_backends.bridge.events import now_ns
from python_backends.bridge.log import log_failed_turn
from python_backends.bridge.meters import Meters
from python_backends.bridge.outbox import Work
from python_backends.bridge.request import MAX_INPUT_BYTES, Answer, Request
from python_backends.errors import StageError, from_text


class MeteredRequest(Request):
    """Tells on the thread that hands responses over, and only of those that the server took.

    Control requests tell nothing.
    """

    def __init__(
        self,
        native: Any,
        stage: str,
        on_end: Callable[[Request], None],
        post: Callable[[Work], None],
        meters: Meters,
        most_bytes: int = MAX_INPUT_BYTES,
    ) -> None:
        super().__init__(native, stage, on_end, post, most_bytes)
        self._meters = Meters() if self.is_control else meters
        self._answered = False

    def _hand_over(self, answer: Answer) -> None:
        super()._hand_over(answer)
        if self._fault is None:
            self._note_answer()

    def _send_last(self, answer: Answer | None) -> None:
        error = _error(answer)
        super()._send_last(answer)
        if answer is not None and error is None:
            self._note_answer()
        self._meters.count("requests_total", outcome="ok" if error is None else error.code)
        if error is not None and not self.is_control:
            log_failed_turn(error, self.stage, self.turn, self.options.traceparent)

    def _note_answer(self) -> None:
        if not self._answered:
            self._answered = True
            self._meters.observe("first_chunk_seconds", (now_ns() - self.arrived_ns) / 1e9)


def _error(answer: Answer | None) -> StageError | None:
    """The error that a last response is, if it is one."""
    if answer is None or not answer.native.has_error():
        return None
    return from_text(answer.native.error().message())
