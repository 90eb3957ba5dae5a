"""Another Triton server, or this one: requests as gRPC streams, and cancels by turn id."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2, service_pb2_grpc

from python_backends import wire
from python_backends.access import Access
from python_backends.errors import StageError, StageFailed, from_text
from python_backends.regions import Place, Region

CANCEL_TIMEOUT_S = 2.0
AWAY = re.compile("has no available versions|unknown model|is not (ready|found)")
"""What a server says of a model that is being loaded."""

Outputs = dict[str, NDArray[Any]]


class Unreachable(StageFailed):
    """The connection to a server broke, or there is none."""


class Silent(StageFailed):
    """Nothing has come for too long."""


@dataclass(frozen=True)
class Answer:
    """One response; `last`: the server has marked it as the final one."""

    outputs: Outputs
    last: bool


class Peer:
    """One long-lived channel to a server; every request is a stream of its own on it, dialled as a
    call with one request, which is half the work of one that is written to."""

    def __init__(self, address: str, access: Access | None = None) -> None:
        """`access`: that of this process's environment where it is left out. OSError when a
        certificate of it cannot be read."""
        access = Access.of_environment() if access is None else access
        self.address = address
        self._admin = access.metadata
        self._channel = access.dial_async(address, wire.CHANNEL_OPTIONS)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._stream = self._channel.unary_stream(
            wire.STREAM_METHOD,
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )

    async def stream(
        self,
        model: str,
        inputs: Mapping[str, NDArray[Any]],
        *,
        turn: str,
        parameters: Mapping[str, Any],
        silence_s: float,
        shared: Mapping[str, Place] = wire.NOTHING_SHARED,
    ) -> AsyncGenerator[Answer, None]:
        """Responses with tensors of one request, until its final one. `shared`: inputs that lie in
        a region the server was told of.

        Silent when nothing has come for `silence_s`, Unreachable when the connection breaks;
        otherwise the error that the model answered with.
        """
        request = wire.to_request(model, inputs, turn=turn, parameters=parameters, shared=shared)
        call = _Call(self._stream(request), silence_s, model)
        try:
            while True:
                message = await call.read()
                if message.error_message:
                    await call.to_end()
                    raise from_text(message.error_message, stage=model, turn=turn)
                last = wire.is_final(message.infer_response)
                if message.infer_response.outputs:
                    yield Answer(wire.to_arrays(message.infer_response), last)
                if last:
                    await call.to_end()
                    return
        finally:
            call.close()

    async def cancel(self, turn: str, stages: Sequence[str]) -> None:
        """Tell every stage to drop `turn`; a stage that does not answer is left to its time-out.

        Each on a stream of its own: answers of decoupled and of other models on one stream are
        written concurrently by this server (2.51), and that aborts it.
        """
        await asyncio.gather(*(self._cancel_at(stage, turn) for stage in stages))

    async def control(self, stage: str, order: Mapping[str, Any], timeout_s: float) -> Outputs:
        """Send an order to a stage that has an input CONTROL; the tensors it answers with.

        Silent when it has not answered within `timeout_s`; otherwise as `stream`.
        """
        word = np.array([[json.dumps(dict(order)).encode()]], dtype=np.object_)
        answers = self.stream(stage, {"CONTROL": word}, turn="", parameters={}, silence_s=timeout_s)
        found: Outputs = {}
        try:
            async for answer in answers:
                found = answer.outputs
        finally:
            await answers.aclose()
        return found

    async def config(self, model: str, timeout_s: float) -> Any:
        """The ModelConfig that the server has of a model; StageFailed when it has none now."""
        request = service_pb2.ModelConfigRequest(name=model)
        try:
            return (await self._stub.ModelConfig(request, timeout=timeout_s)).config
        except grpc.aio.AioRpcError as fault:
            raise StageFailed(f"{model}: {fault.details()}", stage=model) from fault

    async def is_live(self, timeout_s: float) -> bool:
        """The server itself answers."""
        try:
            live = self._stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=timeout_s)
            return bool((await live).live)
        except grpc.aio.AioRpcError:
            return False

    async def share(self, region: Region, timeout_s: float) -> bool:
        """Tell the server of a region in this host's shared memory; whether it can be used there.

        It is not withdrawn while it serves: a request in the server's queue may refer to it.
        """
        request = service_pb2.SystemSharedMemoryRegisterRequest(
            name=region.name, key=region.key, offset=0, byte_size=region.size
        )
        try:
            await self._stub.SystemSharedMemoryRegister(
                request, timeout=timeout_s, metadata=self._admin
            )
        except grpc.aio.AioRpcError as fault:
            return bool(fault.code() is grpc.StatusCode.ALREADY_EXISTS)
        return True

    async def unshare(self, region: Region, timeout_s: float) -> None:
        """Have the server forget a region that nothing refers to any more, if it can be told."""
        request = service_pb2.SystemSharedMemoryUnregisterRequest(name=region.name)
        with suppress(grpc.aio.AioRpcError):
            await self._stub.SystemSharedMemoryUnregister(
                request, timeout=timeout_s, metadata=self._admin
            )

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()

    async def _cancel_at(self, stage: str, turn: str) -> None:
        with suppress(StageError):
            await self.control(stage, {"cancel": turn}, CANCEL_TIMEOUT_S)


class _Call:
    """One stream, given up when nothing has come for `silence_s`.

    A timer looks when it was last heard of: a time-out around every read costs more than the read.
    """

    def __init__(self, call: Any, silence_s: float, model: str) -> None:
        self._call = call
        self._silence_s = silence_s
        self._model = model
        self._loop = asyncio.get_running_loop()
        self._silent = self._reading = False
        self._heard_s = self._loop.time()
        self._timer = self._loop.call_later(silence_s, self._look)

    async def read(self) -> Any:
        """The next message; Silent, or Unreachable when the stream ends instead."""
        self._heard_s, self._reading = self._loop.time(), True
        try:
            message = await self._call.read()
        except asyncio.CancelledError:
            if not self._silent or _is_being_cancelled():
                raise
            raise Silent(f"no progress for {self._silence_s:g} s", stage=self._model) from None
        except grpc.aio.AioRpcError as fault:
            raise Unreachable(f"the stream broke: {fault.details()}", stage=self._model) from fault
        finally:
            self._reading = False
        if message is grpc.aio.EOF:
            raise Unreachable("the stream ended without a final response", stage=self._model)
        return message

    async def to_end(self) -> None:
        """Read until the stream is closed, however that goes: cut off after its final response, the
        server would keep the models of the request loaded."""
        with suppress(StageError):
            while True:
                await self.read()

    def close(self) -> None:
        """Cut it off, if it has not ended."""
        self._timer.cancel()
        self._call.cancel()

    def _look(self) -> None:
        """What has come while nobody read it, since others are answered first, is no silence."""
        left_s = self._heard_s + self._silence_s - self._loop.time()
        if not self._reading:
            left_s = self._silence_s
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self._silent = True
            self._call.cancel()


def _is_being_cancelled() -> bool:
    """Somebody has cancelled the task that asks."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
