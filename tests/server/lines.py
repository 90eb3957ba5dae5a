"""Callers of `listen` and `live` on a running server, one gRPC stream each, without the client."""

import json
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2_grpc

from python_backends import wire
from tests.server.sounds import Floats

WAIT_S = 20.0


def pcm(sound: Floats) -> bytes:
    """float32 [samples] as 16 bit PCM."""
    return bytes((np.clip(sound, -1, 1) * 32_767).astype("<i2").tobytes())


@dataclass
class Line:
    """A stream to a model that a call can be made on, by whoever, under whatever ids."""

    address: str
    model: str
    call: str
    sequence: int | str
    events: list[dict[str, Any]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    """By request id."""

    answered: set[str] = field(default_factory=set)
    """Requests that have ended."""

    def __post_init__(self) -> None:
        self._channel = grpc.insecure_channel(self.address, options=wire.CHANNEL_OPTIONS)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._stream = stub.ModelStreamInfer(iter(self._requests.get, None))
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._number = 0

    def say(
        self,
        sound: bytes = bytes(2),
        *,
        start: bool = False,
        end: bool = False,
        name: str | None = None,
        report: Any = None,
        **parameters: Any,
    ) -> str:
        """Send a chunk; its request id."""
        self._number += 1
        name = name or (self.call if start else f"{self.call}/{self._number}")
        tensors: dict[str, Any] = {"PCM": np.frombuffer(sound, np.uint8)[None]}
        if report is not None:
            tensors["REPORT"] = np.array([[json.dumps(report).encode()]], np.object_)
        ids = {"sequence_id": self.sequence, "sequence_start": start, "sequence_end": end}
        request = wire.to_request(self.model, tensors, turn=name, parameters={**parameters, **ids})
        self._requests.put(request)
        return name

    def say_all(self, sound: bytes, *, sizes: Iterator[int], start: bool, end: bool) -> None:
        """Send it in chunks, each when the one before has been listened to."""
        at = 0
        while at < len(sound):
            size = next(sizes)
            name = self.say(
                sound[at : at + size], start=start and not at, end=end and at + size >= len(sound)
            )
            at += size
            if name != self.call:
                self.ended(name)

    def ended(self, name: str | None = None) -> list[dict[str, Any]]:
        """All events, once a request has ended, by default the first of the call."""
        wanted = name or self.call
        self._until(lambda: wanted in self.answered, f"the end of {wanted}")
        return self.events

    def until(self, kind: str, times: int = 1) -> dict[str, Any]:
        """The n-th event of a kind."""

        def found() -> list[dict[str, Any]]:
            return [one for one in self.events if one["type"] == kind]

        self._until(lambda: len(found()) >= times, kind)
        return found()[times - 1]

    def close(self) -> None:
        """Vanish."""
        self._stream.cancel()
        self._reader.join()
        self._channel.close()

    def _until(self, met: Any, what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(met, WAIT_S), f"no {what}: {self.events} {self.errors}"

    def _read(self) -> None:
        try:
            for message in self._stream:
                with self._changed:
                    self._take(message)
                    self._changed.notify_all()
        except grpc.RpcError:
            pass

    def _take(self, message: Any) -> None:
        response = message.infer_response
        if message.error_message:
            self.errors[response.id] = message.error_message
            self.answered.add(response.id)
        elif response.outputs:
            event = json.loads(wire.to_arrays(response)["EVENT"].item())
            self.events.append({**event, "received_s": time.monotonic()})
        if wire.is_final(response):
            self.answered.add(response.id)
