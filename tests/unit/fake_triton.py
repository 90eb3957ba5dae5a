"""A small gRPC server that answers as a script says, and the messages that `turn` would send."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import serialize_byte_tensor

AUDIO = np.linspace(-1, 1, 160, dtype=np.float32)
WAIT_S = 5.0
Message = Any
Script = Callable[[Any, Any], Iterator[Message]]


class FakeServer(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Answers every request as the script says, and remembers requests and closed calls."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Any] = []
        self.regions: dict[str, str] = {}
        """Shared memory that callers have told of: name -> key."""

        self.arrived = threading.Semaphore(0)
        self.gone = threading.Semaphore(0)

    def ModelStreamInfer(self, messages: Iterator[Any], context: Any) -> Iterator[Message]:
        context.add_callback(self.gone.release)
        for request in messages:
            self.requests.append(request)
            self.arrived.release()
            yield from self.script(request, context)

    def SystemSharedMemoryRegister(self, request: Any, context: Any) -> Any:
        self.regions[request.name] = request.key
        return service_pb2.SystemSharedMemoryRegisterResponse()

    def SystemSharedMemoryUnregister(self, request: Any, context: Any) -> Any:
        self.regions.pop(request.name, None)
        return service_pb2.SystemSharedMemoryUnregisterResponse()

    def ModelInfer(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        return next(self.script(request, context)).infer_response


@contextmanager
def serving(script: Script, certificate: Path | None = None) -> Iterator[tuple[FakeServer, str]]:
    """`certificate`: over TLS; its key lies beside it."""
    fake = FakeServer(script)
    server = grpc.server(ThreadPoolExecutor(8))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(fake, server)
    if certificate is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        pair = (certificate.with_suffix(".key").read_bytes(), certificate.read_bytes())
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    server.start()
    try:
        yield fake, f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def texts(*values: str) -> np.ndarray:
    return np.array([[value.encode() for value in values]], dtype=np.object_)


def message(request: Any, *, final: bool = False, **tensors: np.ndarray) -> Message:
    answer = service_pb2.ModelStreamInferResponse()
    response = answer.infer_response
    response.id = request.id
    response.parameters["triton_final_response"].bool_param = final
    kinds = {"O": "BYTES", "f": "FP32", "i": "INT32"}
    for name, tensor in tensors.items():
        response.outputs.add(name=name, datatype=kinds[tensor.dtype.kind], shape=tensor.shape)
        bytes_of = (
            serialize_byte_tensor(tensor).item if tensor.dtype.kind == "O" else tensor.tobytes
        )
        response.raw_output_contents.append(bytes_of())
    return answer


def chunk(request: Any, piece: int, number: int, flags: int, *, final: bool = False) -> Message:
    event = {"stage": "think", "turn": request.id, "piece": piece, "what": "compute"}
    return message(
        request,
        final=final,
        PIECE=np.array([[piece, number, flags]], np.int32),
        TEXT=texts(f"Piece {piece}."),
        HEARD=texts("two burgers"),
        STATUS=texts("stop"),
        EVENTS=texts(json.dumps({**event, "start_ns": 1, "end_ns": 2, "tokens": 7})),
        SPEECH=np.full((1, 30), piece + number / 10, np.float32),
        SAMPLE_RATE=np.array([[24_000]], np.int32),
    )


def end(request: Any) -> Message:
    return message(request, final=True)


def failure(request: Any, text: str) -> Message:
    return service_pb2.ModelStreamInferResponse(error_message=text)


def two_pieces(request: Any, context: Any) -> Iterator[Message]:
    yield chunk(request, 0, 0, 0)
    yield chunk(request, 0, 1, 1)
    yield chunk(request, 1, 0, 3)
    yield end(request)


def one_chunk_then_silence(request: Any, context: Any) -> Iterator[Message]:
    yield chunk(request, 0, 0, 0)
    gone = threading.Event()
    context.add_callback(gone.set)
    gone.wait(WAIT_S)
