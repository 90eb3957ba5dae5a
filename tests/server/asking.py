"""Asking a running server without the client's own calls: `think`, and requests made by hand."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2_grpc

from client.responses import TurnChunk, TurnReader
from python_backends import wire

Ask = service_pb2_grpc.GRPCInferenceServiceStub


@dataclass
class Said:
    pieces: list[str] = field(default_factory=list)
    status: str = ""
    error: str = ""

    @property
    def text(self) -> str:
        return " ".join(piece for piece in self.pieces if piece)


@contextmanager
def asking(address: str) -> Iterator[Ask]:
    with grpc.insecure_channel(address, options=wire.CHANNEL_OPTIONS) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def call(stub: Ask, heard: str, turn: str, tensors: Mapping[str, str], options: Any) -> Any:
    inputs = {
        name: np.array([[text.encode()]], np.object_)
        for name, text in {"HEARD": heard, **tensors}.items()
    }
    request = wire.to_request("think", inputs, turn=turn, parameters=options)
    return stub.ModelStreamInfer(iter([request]))


def ask(
    stub: Ask, heard: str, turn: str = "t", tensors: Mapping[str, str] = {}, **options: Any
) -> Said:
    said = Said()
    for message in call(stub, heard, turn, tensors, options):
        if message.error_message:
            return Said(error=message.error_message)
        outputs = wire.to_arrays(message.infer_response)
        if outputs:
            said.pieces.append(outputs["TEXT"][0, 0].decode())
            said.status = outputs["STATUS"][0, 0].decode()
        if wire.is_final(message.infer_response):
            break
    return said


def chunks_of(stub: Ask, request: Any) -> list[TurnChunk]:
    """All chunks that answer a request of `turn` or `speak`, whatever id it bears, even none."""
    reader = TurnReader(request.id)
    found = []
    for message in stub.ModelStreamInfer(iter([request])):
        if (chunk := reader.take(message, time.monotonic_ns())) is not None:
            found.append(chunk)
        if reader.finals:
            break
    reader.close()
    return found
