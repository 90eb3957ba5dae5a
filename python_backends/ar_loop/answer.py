"""An answer of `think` on its way to the caller, whoever thinks it."""

import numpy as np
from numpy.typing import NDArray

from python_backends.bridge import Request
from python_backends.bridge.events import now_ns
from python_backends.bridge.tensors import text
from python_backends.pieces import LAST_PIECE, NO_SOUND


class Answer:
    """The responses of one `think` request."""

    def __init__(self, request: Request, heard: str) -> None:
        self.request = request
        self._heard = heard
        self._pieces = 0
        self._since = request.arrived_ns

    def started(self) -> None:
        """The first token is there: what came before it was queueing and prefill."""
        self._since = now_ns()

    def emit(self, piece: str, *, last: bool, status: str = "") -> None:
        """Send one piece. HEARD goes with the first, STATUS with the last."""
        flags = (LAST_PIECE if last else 0) | (0 if piece else NO_SOUND)
        self.request.send(
            {
                "PIECE": np.array([[self._pieces, 0, flags]], np.int32),
                "TEXT": text(piece),
                "HEARD": text(self._heard if self._pieces == 0 else ""),
                "STATUS": text(status),
                "EVENTS": self._events(),
            }
        )
        self._pieces += 1

    def _events(self) -> NDArray[np.object_]:
        now, request = now_ns(), self.request
        first = request.span("first_token", request.arrived_ns, self._since, piece=self._pieces)
        own = request.span("compute", self._since, now, piece=self._pieces)
        self._since = now
        return request.with_events(*([first, own] if self._pieces == 0 else [own]))
