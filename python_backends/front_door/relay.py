"""One spoken turn as a loop-back gRPC stream, and the cancel that an ensemble does not pass on."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2_grpc

from python_backends import wire
from python_backends.errors import StageFailed, from_text

CANCEL_TIMEOUT_S = 2.0

Outputs = dict[str, NDArray[Any]]


class Peer:
    """A Triton server that turns are relayed from: here, this very server."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=wire.CHANNEL_OPTIONS)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def stream(
        self,
        model: str,
        inputs: Mapping[str, NDArray[Any]],
        *,
        turn: str,
        parameters: Mapping[str, Any],
        silence_s: float,
    ) -> AsyncGenerator[Outputs, None]:
        """Responses of one request until its final one.

        StageFailed when nothing has come for `silence_s`; otherwise what the model answered with.
        """
        request = wire.to_request(model, inputs, turn=turn, parameters=parameters)
        call = self._stub.ModelStreamInfer(_once(request))
        try:
            while True:
                message = await _next(call, silence_s, model)
                if message.error_message:
                    await _to_end(call, silence_s)
                    raise from_text(message.error_message, stage=model, turn=turn)
                if message.infer_response.outputs:
                    yield wire.to_arrays(message.infer_response)
                if wire.is_final(message.infer_response):
                    await _to_end(call, silence_s)
                    return
        finally:
            call.cancel()

    async def cancel(self, turn: str, stages: Sequence[str]) -> None:
        """Tell every stage to drop `turn`; a stage that does not answer is left to its time-out.

        Each on a stream of its own: answers of decoupled and of other models on one stream are
        written concurrently by this server (2.51), and that aborts it.
        """
        await asyncio.gather(*(self._cancel_at(stage, turn) for stage in stages))

    async def _cancel_at(self, stage: str, turn: str) -> None:
        order = np.array([[json.dumps({"cancel": turn}).encode()]], dtype=np.object_)
        request = wire.to_request(stage, {"CONTROL": order}, turn=f"cancel-{turn}", parameters={})
        call = self._stub.ModelStreamInfer(_once(request), timeout=CANCEL_TIMEOUT_S)
        try:
            await _to_end(call, CANCEL_TIMEOUT_S)
        finally:
            call.cancel()

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()


async def _to_end(call: Any, silence_s: float) -> None:
    """Read until the stream is closed, however that goes: cut off after its final response, the
    server would keep the models of the request loaded."""
    with suppress(TimeoutError, grpc.aio.AioRpcError):
        async with asyncio.timeout(silence_s):
            while await call.read() is not grpc.aio.EOF:
                pass


async def _next(call: Any, silence_s: float, model: str) -> Any:
    try:
        async with asyncio.timeout(silence_s):  # wait_for of 3.11 may lose a cancel
            message = await call.read()
    except TimeoutError as fault:
        raise StageFailed(f"no progress for {silence_s:g} s", stage=model) from fault
    except grpc.aio.AioRpcError as fault:
        raise StageFailed(f"the stream broke: {fault.details()}", stage=model) from fault
    if message is grpc.aio.EOF:
        raise StageFailed("the stream ended without a final response", stage=model)
    return message


async def _once(request: Any) -> AsyncIterator[Any]:
    yield request
