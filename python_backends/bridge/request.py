"""One open request of a stage."""

import contextlib
import copy
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from python_backends.bridge import events
from python_backends.bridge.log import log_fault
from python_backends.bridge.options import MAX_TURN_CHARS, Options
from python_backends.bridge.outbox import Work, at_once
from python_backends.bridge.tensors import Array, size_of, to_array, to_tensors
from python_backends.errors import (
    Cancelled,
    DeadlineMissed,
    InvalidInput,
    Overloaded,
    StageError,
    StageFailed,
)

_CODES: dict[type[StageError], str] = {
    InvalidInput: "INVALID_ARG",
    Overloaded: "UNAVAILABLE",
    DeadlineMissed: "UNAVAILABLE",
    Cancelled: "CANCELLED",
}
MAX_INPUT_BYTES = 64 * 2**20
"""Of a request: a minute of sound takes 4 MB, as do its encoder's states."""

POLL_INTERVAL_S = 0.25
"""Asking the server whether a caller is gone takes a tenth of a millisecond for each request."""


@dataclass(frozen=True)
class Answer:
    """A response, and its tensors until it is sent.

    The stub drops outputs that the caller did not ask for, and while it does so it does not hold
    Python's lock: were those the last references, two threads would be in the allocator at once,
    and some minutes later the stub dies of it, or the whole server.
    """

    native: Any
    tensors: Sequence[Any] = ()

    @classmethod
    def of(cls, outputs: Mapping[str, NDArray[Any]]) -> "Answer":
        """Of named outputs."""
        tensors = to_tensors(outputs)
        return cls(pb_utils.InferenceResponse(tensors), tensors)


@dataclass(frozen=True)
class InSequence:
    """Where a request stands in a sequence; `id` is 0 or empty for one that is in none."""

    id: int | str
    start: bool
    end: bool

    @classmethod
    def of(cls, native: Any) -> "InSequence":
        """Of a request as the stub has it."""
        flags = native.flags()
        return cls(
            native.correlation_id(),
            start=bool(flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START),
            end=bool(flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END),
        )


class Request:
    """Inputs copied out, options parsed, answered by any number of responses and one end.

    `turn` is the request id; without one, the id that the first stage wrote into EVENTS, or a new
    one. Any thread may answer; whoever ends it first has ended it. Responses are handed to the
    server by `post`, in order; `on_end` is called when the last one has been. Inputs of more than
    `most_bytes` are not copied, since they are to be refused.
    """

    def __init__(
        self,
        native: Any,
        stage: str,
        on_end: Callable[["Request"], None],
        post: Callable[[Work], None] = at_once,
        most_bytes: int = MAX_INPUT_BYTES,
    ) -> None:
        self.stage = stage
        self.version = ""
        """Of the stage, told in its spans where it is not the first."""

        self.arrived_ns = events.now_ns()
        self._sender = native.get_response_sender()
        self._on_end = on_end
        self._open = True
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self._post = post
        self._fault: Exception | None = None
        self.poll_interval_s = POLL_INTERVAL_S
        self._poll_at = 0.0
        self._gone = False
        tensors = native.inputs()
        self.input_bytes = sum(size_of(tensor) for tensor in tensors)
        kept = tensors if self.input_bytes <= min(most_bytes, MAX_INPUT_BYTES) else ()
        self._arrays = {tensor.name(): to_array(tensor) for tensor in kept}
        self.events = self.optional("EVENTS")
        self.sequence = InSequence.of(native)
        self.turn = native.request_id() or events.turn_of(self.events) or uuid.uuid4().hex
        self._parameters = native.parameters()
        self.options = Options()

    def do_not_post(self) -> None:
        """Hand over at once, on the thread that answers: what need not wait for the answers to
        others, since it is the only one here and no work was done for it."""
        self._post = at_once

    def parse_options(self) -> None:
        """Read the parameters; apart from the constructor, so that a fault can be answered.

        InvalidInput for a wrong one, for inputs that are too large, and for an id that is too long.
        """
        if self.input_bytes > MAX_INPUT_BYTES:
            raise InvalidInput(
                f"the inputs take {self.input_bytes} bytes; at most {MAX_INPUT_BYTES} are accepted"
            )
        if len(self.turn) > MAX_TURN_CHARS:
            raise InvalidInput(
                f"the request id has {len(self.turn)} characters; at most {MAX_TURN_CHARS} are "
                "accepted"
            )
        self.options = Options.from_json(self._parameters)

    def array(self, name: str) -> Array | None:
        """An input tensor, or None when the caller left it out."""
        return self._arrays.get(name)

    def optional(self, name: str) -> NDArray[Any] | None:
        """An input's values, or None when the caller left it out."""
        found = self._arrays.get(name)
        return None if found is None else found.host

    def required(self, name: str) -> NDArray[Any]:
        """An input's values; InvalidInput when the caller left it out."""
        values = self.optional(name)
        if values is None:
            raise InvalidInput(f"input {name} is missing")
        return values

    def text(self, name: str, default: str | None = None, *, most: int | None = None) -> str:
        """A BYTES input [1, 1] as a string; `default` when left out (None: it is required).

        InvalidInput for anything else, and for more than `most` characters.
        """
        if default is not None and self.optional(name) is None:
            return default
        values = self.required(name)
        if values.size != 1:
            raise InvalidInput(f"input {name} has {values.size} strings; one is accepted")
        try:
            found = bytes(values.reshape(-1)[0]).decode()
        except UnicodeDecodeError as fault:
            raise InvalidInput(f"input {name} is not UTF-8 text") from fault
        if most is not None and len(found) > most:
            raise InvalidInput(f"{name} has {len(found)} characters; at most {most} are accepted")
        return found

    @property
    def is_control(self) -> bool:
        """It is an order to the stage, not work for it."""
        return self.array("CONTROL") is not None

    @property
    def is_open(self) -> bool:
        """It has not been ended yet."""
        return self._open

    @property
    def cancelled(self) -> bool:
        """The caller is gone. Asked of the server every `poll_interval_s` seconds or somewhat more
        often, so that requests that came together are not all asked about at once.

        Any thread may ask, but not while the last response is handed over, nor after: this server
        (2.51) has forgotten the request by then, and dies of the question.
        """
        now = time.monotonic()
        if now < self._poll_at or self._gone:
            return self._gone
        with self._asking:
            if self._open:
                self._poll_at = now + self.poll_interval_s * random.uniform(0.5, 1)
                self._gone = bool(self._sender.is_cancelled())
        return self._gone

    @property
    def gone(self) -> StageError | None:
        """Why nobody waits for the answer any more, if so: its time is over, or its caller left."""
        allowed_ms = self.options.deadline_ms
        if allowed_ms and events.now_ns() - self.arrived_ns > 1_000_000 * allowed_ms:
            return DeadlineMissed(f"not answered within {allowed_ms} ms")
        return Cancelled("the caller has left") if self.cancelled else None

    def span(self, what: str, start_ns: int, end_ns: int, **more: Any) -> bytes:
        """An EVENTS entry of this stage and turn."""
        if self.version:
            more["version"] = self.version
        return events.span(self.stage, self.turn, what, start_ns, end_ns, **more)

    def with_events(self, *spans: bytes) -> NDArray[np.object_]:
        """EVENTS as it came in, with `spans` behind it."""
        return events.appended(self.events, *spans)

    @staticmethod
    def events_after(given: NDArray[np.object_], *spans: bytes) -> NDArray[np.object_]:
        """Somebody else's EVENTS with `spans` behind them."""
        return events.appended(given, *spans)

    def send(self, outputs: Mapping[str, NDArray[Any]]) -> None:
        """One response of a decoupled model; ignored once the request has ended.

        StageFailed when the server has not taken this one, or an earlier one.
        """
        answer = Answer.of(outputs)
        with self._sending:
            if not self._open:
                return
            self._post(partial(self._hand_over, answer))
        if self._fault is not None:
            raise StageFailed(f"a response could not be sent: {self._fault}") from self._fault

    def _hand_over(self, answer: Answer) -> None:
        try:
            self._sender.send(answer.native)
        except pb_utils.TritonModelException as fault:
            self._fault = fault

    def finish(self, outputs: Mapping[str, NDArray[Any]] | None = None) -> None:
        """End it, with a last response where `outputs` are given; ignored if it has ended."""
        self._end(None if outputs is None else Answer.of(outputs))

    def acknowledge(self) -> None:
        """End it with a response without tensors."""
        self._end(Answer.of({}))

    def fail(self, error: StageError) -> None:
        """End it with an error, which others may be ended with too; ignored if it has ended."""
        self._end(self._refusal(error))

    def _refusal(self, error: StageError) -> Answer:
        wire = copy.copy(error).at(self.stage, self.turn).to_wire()
        code = getattr(pb_utils.TritonError, _CODES.get(type(error), "INTERNAL"))
        return Answer(pb_utils.InferenceResponse(error=pb_utils.TritonError(wire, code)))

    def _end(self, answer: Answer | None) -> None:
        with self._sending, self._asking:
            if not self._open:
                return
            self._open = False
            self._post(partial(self._hand_over_last, answer))

    def _hand_over_last(self, answer: Answer | None) -> None:
        try:
            self._send_last(answer)
        except pb_utils.TritonModelException as fault:
            self._end_after(fault)
        finally:
            self._on_end(self)

    def _send_last(self, answer: Answer | None) -> None:
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        if answer is None:
            self._sender.send(flags=final)
        else:
            self._sender.send(answer.native, flags=final)

    def _end_after(self, fault: Exception) -> None:
        """The server did not take the last response: a small error goes instead."""
        what = f"{self.stage}: turn {self.turn!r}: the last response was not taken"
        log_fault(what, fault, quote=True, stage=self.stage, turn=self.turn)
        with contextlib.suppress(pb_utils.TritonModelException):
            self._send_last(self._refusal(StageFailed(f"the answer could not be sent: {fault}")))
