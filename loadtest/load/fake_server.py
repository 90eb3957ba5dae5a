"""A server that answers turns at known times: what the generator itself is measured with.

    python -m loadtest.load.fake_server '{"chunks": 19, "first_s": 0.5, "gap_s": 0.1}'

prints its address and serves until it is killed. It computes nothing and emulates no device.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2
from tritonclient.utils import serialize_byte_tensor

from loadtest.load.spec import ROOT
from python_backends.errors import Overloaded
from python_backends.pieces import LAST_CHUNK, LAST_PIECE

SERVICE, METHOD = "inference.GRPCInferenceService", "ModelStreamInfer"
CHUNK_AUDIO_MS = 320.0
SPANS = 8
SENT = "sent"
FOREVER_S = 3600.0
_DATATYPES = {"i": "INT32", "f": "FP32", "O": "BYTES"}


@dataclass(frozen=True)
class Script:
    """How turns are answered: a first chunk after `first_s`, then one every `gap_s`.

    Every `refuse_every`-th turn is refused at once, every `hang_every`-th stops after its first
    chunk, every `break_every`-th ends there; 0 is never.
    """

    chunks: int = 19
    first_s: float = 0.1
    gap_s: float = 0.1
    refuse_every: int = 0
    hang_every: int = 0
    break_every: int = 0

    @property
    def total_s(self) -> float:
        """From request to last chunk."""
        return self.first_s + (self.chunks - 1) * self.gap_s


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """The address of such a server, in a process of its own."""
    command = [sys.executable, "-m", "loadtest.load.fake_server", json.dumps(asdict(script))]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


class Answers:
    """The servicer: every turn as the script says."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._count = 0

    async def stream(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[bytes]:
        """ModelStreamInfer, answered in bytes."""
        async for request in requests:
            async for message in self._turn(request.id):
                yield message

    async def _turn(self, turn: str) -> AsyncIterator[bytes]:
        script, number = self._script, self._next()
        if _is_nth(number, script.refuse_every):
            refusal = Overloaded("no room", stage="think", turn=turn, retry_after_ms=50)
            yield _bytes(service_pb2.ModelStreamInferResponse(error_message=refusal.to_wire()))
            return
        due_s = time.monotonic() + script.first_s
        for chunk in range(script.chunks):
            await asyncio.sleep(due_s - time.monotonic())
            yield _chunk(turn, chunk, script.chunks)
            if _is_nth(number, script.hang_every):
                await asyncio.sleep(FOREVER_S)
            if _is_nth(number, script.break_every):
                return
            due_s += script.gap_s
        yield _bytes(_response(turn, final=True))

    def _next(self) -> int:
        self._count += 1
        return self._count


def _is_nth(number: int, every: int) -> bool:
    return every > 0 and number % every == 0


def _spans(turn: str) -> np.ndarray[Any, Any]:
    """EVENTS, as long as those of a real turn; they say when the chunk was sent."""
    now_ns = time.monotonic_ns()
    span = {"stage": "fake", "turn": turn, "piece": 0, "what": SENT}
    line = json.dumps(span | {"start_ns": now_ns, "end_ns": now_ns}).encode()
    return np.array([[line] * SPANS], np.object_)


def _chunk(turn: str, chunk: int, chunks: int) -> bytes:
    last = LAST_CHUNK if chunk + 1 == chunks else 0
    response = _response(turn, final=False)
    _add(response, "PIECE", np.array([[0, chunk, last | LAST_PIECE]], np.int32))
    _add(response, "TEXT", np.array([[b"Two burgers."]], np.object_))
    _add(response, "SPEECH", np.array([[CHUNK_AUDIO_MS]], np.float32))
    _add(response, "SAMPLE_RATE", np.array([[24_000]], np.int32))
    _add(response, "EVENTS", _spans(turn))
    return _bytes(response)


def _response(turn: str, *, final: bool) -> Any:
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.id = turn
    message.infer_response.parameters["triton_final_response"].bool_param = final
    return message


def _add(message: Any, name: str, tensor: np.ndarray[Any, Any]) -> None:
    response, kind = message.infer_response, tensor.dtype.kind
    response.outputs.add(name=name, datatype=_DATATYPES[kind], shape=tensor.shape)
    raw = serialize_byte_tensor(tensor).item() if kind == "O" else tensor.tobytes()
    response.raw_output_contents.append(raw)


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


async def _serve(script: Script) -> None:
    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(
        Answers(script).stream, service_pb2.ModelInferRequest.FromString, None
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve(Script(**json.loads(sys.argv[1]))))
