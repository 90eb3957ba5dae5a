"""One turn at the front door: who asked for it, what is left of its time, and what was said."""

import math
import uuid
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from python_backends.bridge import Request
from python_backends.bridge.events import now_ns
from python_backends.bridge.options import MAX_SESSION_CHARS
from python_backends.errors import InvalidInput
from python_backends.ordering.exchange import Exchange
from python_backends.peer import Outputs
from python_backends.tracing.door_turn import EXPORTED, DoorTurn
from python_backends.versions import Serving

AT_ONCE_NS = 20_000_000
"""Who was let in so soon has not waited."""

MAX_TURN_CHARS = 128
"""Of a caller's id."""

MAX_HEARD_CHARS = 4000
"""Of the words of a turn that is sent as words."""

TENSORS = ("AUDIO", "HISTORY", "SESSION_ID")
"""Of a turn that is sent as sound."""


@dataclass(eq=False)
class Turn:
    """Behind the door a turn bears its caller's id with a suffix: ids may be missing or used twice.

    InvalidInput unless there is either AUDIO or HEARD, when SESSION_ID is not text, and for ids
    that are too long.
    """

    request: Request
    id: str = ""
    session: str = ""
    heard: str = ""
    """What was said, where it is sent as words."""

    began_ns: int = 0
    """When it was let in; 0 while it waits."""

    exchange: Exchange = field(default_factory=Exchange)
    is_traced: bool = False
    """Its spans are kept, for a collector."""

    spans: dict[bytes, None] = field(default_factory=dict)
    first_ns: int | None = None
    """When its first response left."""

    failure: str | None = None
    """The code it ended with, "" where it was answered; None until then."""

    serving: Serving = field(default_factory=Serving)
    """The versions of the stages that it goes to."""

    def __post_init__(self) -> None:
        self.heard = self.request.text("HEARD", "", most=MAX_HEARD_CHARS)
        if not self.in_words:
            self.request.required("AUDIO")
        elif self.request.array("AUDIO") is not None:
            raise InvalidInput("a turn is AUDIO or HEARD; one of them is accepted")
        if (length := len(self.request.turn)) > MAX_TURN_CHARS:
            raise InvalidInput(
                f"the request id has {length} characters; at most {MAX_TURN_CHARS} are accepted"
            )
        self.id = f"{self.request.turn}~{uuid.uuid4().hex[:8]}"
        self.session = self.request.text("SESSION_ID", "", most=MAX_SESSION_CHARS)

    @property
    def caller(self) -> str:
        """Who is to be treated fairly: the caller that is named, the session, or the turn alone."""
        return self.request.options.caller or self.session or self.id

    @property
    def deadline_s(self) -> float:
        """On time.monotonic; infinity for none."""
        allowed_ms = self.request.options.deadline_ms
        return self.request.arrived_ns / 1e9 + allowed_ms / 1e3 if allowed_ms else math.inf

    @property
    def remembered(self) -> bool:
        """Its conversation is the door's: the caller sends none."""
        return bool(self.session) and self.request.optional("HISTORY") is None

    def parameters(self) -> dict[str, Any]:
        """For a request to a stage now."""
        given = self.request.options.given()
        if "deadline_ms" in given:
            given["deadline_ms"] = max(1, round(1000 * (self.deadline_s - now_ns() / 1e9)))
        return {**given, "ordered": False}

    @property
    def in_words(self) -> bool:
        """It is sent as words, and need not be listened to."""
        return self.request.array("HEARD") is not None

    def told(self, failure: str) -> DoorTurn:
        """What a collector is told of it; `failure`: the code of a turn that never began."""
        return DoorTurn(
            turn=self.request.turn,
            traceparent=self.request.options.traceparent,
            arrived_ns=self.request.arrived_ns,
            end_ns=now_ns(),
            first_ns=self.first_ns,
            failure=failure if self.failure is None else self.failure,
            events=tuple(self.spans),
        )

    def inputs(self) -> Outputs:
        """What the caller sent, but HEARD."""
        found = {name: self.request.optional(name) for name in TENSORS}
        return {name: values for name, values in found.items() if values is not None}

    def send(self, outputs: Outputs) -> None:
        """Relay a response, with the door's own spans behind its events."""
        request, place = self.request, outputs["PIECE"]
        piece, chunk = int(place[0, 0]), int(place[0, 1])
        if not chunk:  # every chunk of a piece has the text of the whole
            self.exchange.add(_line(outputs["HEARD"]), _line(outputs["TEXT"]))
        told = {EXPORTED: True} if self.is_traced else {}
        spans = [request.span("relay", request.arrived_ns, now_ns(), piece=piece, **told)]
        if not place[0, :2].any() and self.began_ns - request.arrived_ns > AT_ONCE_NS:
            spans.append(request.span("admission", request.arrived_ns, self.began_ns, piece=piece))
        events = request.events_after(outputs["EVENTS"], *spans)
        request.send({**outputs, "EVENTS": events})
        if self.is_traced:
            self.first_ns = self.first_ns or now_ns()
            self.spans |= dict.fromkeys(bytes(one) for one in events.reshape(-1))


def _line(values: NDArray[Any]) -> str:
    return bytes(values.reshape(-1)[0]).decode(errors="replace")
