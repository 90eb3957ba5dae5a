"""What the generator sends and how: tritonclient's protobufs on one channel for all callers.

A turn is one request of the stream ModelStreamInfer, so it is dialled as a unary-stream call of
that method: no greenlet per call that feeds requests. gRPC's single-threaded streams are tempting
(less CPU), but under gevent each waiting call then holds one of the hub's ten native threads, and
with more callers than threads chunks are noticed hundreds of ms late while the loop looks idle.

A live call has as many requests as chunks, so it costs that greenlet, in which gRPC takes the next
one; all calls share the one native thread that waits for the channel.
"""

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from client import audio
from client.calls import CHANNEL_OPTIONS, error_of
from client.requests import new_turn_id
from loadtest.load.reading import Reading
from loadtest.load.spec import RunSpec
from python_backends import wire
from python_backends.errors import StageFailed

EMULATED_SAMPLES = 16
SHORTEST_S = 0.001


class Caller:
    """Speaks turns to one server; for any number of greenlets."""

    def __init__(self, address: str, spec: RunSpec) -> None:
        self._options = dict(spec.options)
        self._model = spec.model
        self._timeout_s = spec.timeout_s
        self._emulated = spec.emulated
        self._sounds = sounds(spec)
        self._run = new_turn_id()[:8]
        self._numbers = count()
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        messages = {
            "request_serializer": service_pb2.ModelInferRequest.SerializeToString,
            "response_deserializer": service_pb2.ModelStreamInferResponse.FromString,
        }
        self._stream = self._channel.unary_stream(wire.STREAM_METHOD, **messages)
        self._line = self._channel.stream_stream(wire.STREAM_METHOD, **messages)

    def new_id(self) -> str:
        """An id that no other turn has, of this run or any other."""
        return f"{self._run}-{next(self._numbers):06d}"

    def request(self, turn: str, user: int) -> Any:
        """The ModelInferRequest of a turn, with the sound that `user` always makes."""
        sound = {"AUDIO": self._sounds[user % len(self._sounds)]}
        return wire.to_request(self._model, sound, turn=turn, parameters=self._options)

    def listen(self, request: Any, reading: Reading, deadline_ns: int) -> None:
        """Send it and read until the turn has ended; raises a StageError unless it ended well.

        At `deadline_ns` the stream is cancelled, here and on the server: DeadlineMissed. However
        this is left, nothing stays open.
        """
        left_s = max(SHORTEST_S, (deadline_ns - time.monotonic_ns()) / 1e9)
        call = self._stream(request, timeout=left_s)
        try:
            for message in call:
                reading.take(message, time.monotonic_ns())
            reading.close()
        except grpc.RpcError as fault:
            raise error_of(fault, reading.turn, self._timeout_s) from fault
        finally:
            call.cancel()

    def dial(self, requests: Iterator[Any]) -> Any:
        """The messages of a live call; `requests` is run in a greenlet of its own."""
        return self._line(requests)

    def spoken(self, user: int) -> list[audio.Floats]:
        """What `user` says in a live call: all recordings, float32 [samples], each beginning with
        another one."""
        first = user % len(self._sounds)
        return [sound[0] for sound in self._sounds[first:] + self._sounds[:first]]

    def reading(self, turn: str) -> Reading:
        """For the answer to a turn."""
        return Reading(turn, emulated=self._emulated)

    def connect(self) -> None:
        """Wait until the server listens; StageFailed after the time-out."""
        try:
            grpc.channel_ready_future(self._channel).result(self._timeout_s)
        except grpc.FutureTimeoutError as fault:
            raise StageFailed("no server listens there", stage="client") from fault

    def close(self) -> None:
        self._channel.close()


def sounds(spec: RunSpec) -> list[audio.Floats]:
    """AUDIO float32 [1, samples] of each kind of turn, ready to be sent."""
    if spec.recordings:
        return [np.ascontiguousarray(audio.read(path)[None]) for path in spec.recordings]
    return [np.full((1, EMULATED_SAMPLES), bucket, np.float32) for bucket in spec.buckets]
