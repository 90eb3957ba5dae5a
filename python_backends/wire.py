"""Tensors to and from raw gRPC messages of the KServe protocol."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2
from tritonclient.utils import (
    deserialize_bytes_tensor,
    np_to_triton_dtype,
    serialize_byte_tensor,
    triton_to_np_dtype,
)

from python_backends.regions import Place

CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)
NOTHING_SHARED: Mapping[str, Place] = {}
STREAM_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
FINAL = "triton_final_response"


def to_request(
    model: str,
    inputs: Mapping[str, NDArray[Any]],
    *,
    turn: str,
    parameters: Mapping[str, Any],
    streamed: bool = True,
    shared: Mapping[str, Place] = NOTHING_SHARED,
) -> Any:
    """A ModelInferRequest; `streamed`: its stream ends with a marked final response, even where
    no tensors are left to send. `shared`: inputs that lie in shared memory the server knows."""
    message = service_pb2.ModelInferRequest(model_name=model, id=turn)
    if streamed:
        message.parameters["triton_enable_empty_final_response"].bool_param = True
    for key, value in parameters.items():
        _set_parameter(message.parameters[key], value)
    for name, values in inputs.items():
        datatype = np_to_triton_dtype(values.dtype)
        tensor = message.inputs.add(name=name, datatype=datatype, shape=values.shape)
        if name in shared:
            _refer(tensor, shared[name])
        else:
            message.raw_input_contents.append(_raw(values))
    return message


def to_arrays(message: Any) -> dict[str, NDArray[Any]]:
    """Outputs of a ModelInferResponse by name."""
    return {
        output.name: _values(output, raw)
        for output, raw in zip(message.outputs, message.raw_output_contents, strict=True)
    }


def is_final(message: Any) -> bool:
    """The ModelInferResponse is the last of its request."""
    return FINAL in message.parameters and bool(message.parameters[FINAL].bool_param)


def _refer(tensor: Any, place: Place) -> None:
    tensor.parameters["shared_memory_region"].string_param = place.region
    tensor.parameters["shared_memory_offset"].int64_param = place.offset
    tensor.parameters["shared_memory_byte_size"].int64_param = place.size


def _set_parameter(slot: Any, value: Any) -> None:
    if isinstance(value, bool):
        slot.bool_param = value
    elif isinstance(value, int):
        slot.int64_param = value
    else:
        slot.string_param = str(value)


def _raw(values: NDArray[Any]) -> bytes:
    if values.dtype == np.object_:
        packed = serialize_byte_tensor(values)
        return bytes(packed.item()) if packed.size else b""
    return values.tobytes()


def _values(output: Any, raw: bytes) -> NDArray[Any]:
    if output.datatype == "BYTES":
        found: NDArray[Any] = deserialize_bytes_tensor(raw)
    else:
        found = np.frombuffer(raw, dtype=triton_to_np_dtype(output.datatype))
    return found.reshape(tuple(output.shape))
