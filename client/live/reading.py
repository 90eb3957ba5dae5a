"""The messages of one live call's stream: events out, and the answer to every chunk noted."""

from collections import deque
from typing import Any

from client.live.events import LiveEvent, read_event
from python_backends import wire
from python_backends.errors import StageFailed, from_text

MOST_LAGS = 4096


class CallReader:
    """Pure: it is told the time, ns of CLOCK_MONOTONIC. The first request bears the call's id and
    stays open for its events; each one after it, `<id>/<number>`, is answered when its sound has
    been listened to."""

    def __init__(self, call_id: str, model: str) -> None:
        self.call_id = call_id
        self.over = False
        """The call has been closed: nothing follows."""

        self.lags_ms: deque[float] = deque(maxlen=MOST_LAGS)
        """How long the last chunks took to be listened to."""

        self.heard_ns = 0
        """When something came last, or began to be waited for."""

        self._model = model
        self._unanswered: dict[str, int] = {}

    @property
    def waits(self) -> bool:
        """Chunks have not been answered yet."""
        return bool(self._unanswered)

    def sent(self, name: str, now_ns: int) -> None:
        """The request of this id is on its way."""
        if not self._unanswered:
            self.heard_ns = now_ns
        if name != self.call_id:
            self._unanswered[name] = now_ns

    def take(self, message: Any, now_ns: int) -> LiveEvent | None:
        """The event of a ModelStreamInferResponse, if it is one. Raises the StageError that ends
        the call; what is wrong with one chunk is a "failed" event without a turn."""
        self.heard_ns = now_ns
        response = message.infer_response
        sent_ns = self._unanswered.pop(response.id, None)
        if message.error_message:
            error = from_text(message.error_message, stage=self._model).at("", self.call_id)
            if not response.id or response.id == self.call_id:
                raise error
            return LiveEvent("failed", "", "", now_ns, error=error)
        if response.id == self.call_id:
            self.over = wire.is_final(response)
            return read_event(response, now_ns) if response.outputs else None
        if not response.id.startswith(f"{self.call_id}/"):
            raise StageFailed(
                f"a message for {response.id!r} came to this call",
                stage="client",
                turn=self.call_id,
            )
        if sent_ns is not None:
            self.lags_ms.append((now_ns - sent_ns) / 1e6)
        return None
