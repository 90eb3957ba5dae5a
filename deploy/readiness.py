"""Readiness: the server says so, and every model has answered one real inference.

The server's own word is not enough: it counts a model as ready whose stub is dead, or whose first
request would fail.
"""

import json
import struct
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc
from tritonclient.utils import triton_to_np_dtype

from deploy.errors import ServerFailed
from deploy.proxies import PROXY_BACKEND, has_control
from python_backends import wire
from python_backends.access import OPEN, Access

PROBE = b'{"probe": true}'
"""Value of CONTROL that a stage with a queue of its own answers at once with an empty response."""

VARIABLE_DIM = 16
"""What a probe puts for -1: even, and above the 10 context frames of the vocoder."""

PROBE_COMMAND = -1
"""Value of COMMAND that a slot engine answers without touching its pool."""

NATIVE_BACKENDS = frozenset({"onnxruntime", "tensorrt"})
SEQUENCE_ID = "probe"
LOAD_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 1.0
CHANNEL_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
]
"""A probe learns quickly that its server is back, whatever other connections to it went through."""


def covered_by_a_turn(config: Any) -> bool:
    """Ensembles and the front door: a rehearsal says more than a probe could."""
    return config.platform == "ensemble" or "ensemble" in config.parameters


def can_be_probed(config: Any) -> bool:
    """A probe would compute here: not an ensemble, nor a proxy that would have to pass it on."""
    passes_on = config.backend == PROXY_BACKEND and not has_control(config)
    return not (covered_by_a_turn(config) or passes_on)


def probe_request(config: Any) -> Any:
    """A small valid ModelInferRequest for a model: CONTROL where it has one, else its inputs."""
    request = service_pb2.ModelInferRequest(model_name=config.name, id="probe")
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    control = [tensor for tensor in config.input if tensor.name == "CONTROL"]
    for tensor in control or [tensor for tensor in config.input if not tensor.optional]:
        _add_input(request, config, tensor)
    _as_sequence(request, config)
    return request


def control_request(config: Any, order: Mapping[str, Any]) -> Any:
    """A ModelInferRequest with an order to the stage of this config."""
    request = service_pb2.ModelInferRequest(model_name=config.name, id="control")
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    request.inputs.add(name="CONTROL", datatype="BYTES", shape=[1, 1])
    request.raw_input_contents.append(_length_prefixed(json.dumps(dict(order)).encode()))
    _as_sequence(request, config)
    return request


class Probe:
    """A gRPC connection that asks a server whether it and its models answer."""

    def __init__(self, address: str, access: Access = OPEN) -> None:
        self._channel = access.dial(address, CHANNEL_OPTIONS)
        self._metadata = access.metadata
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def close(self) -> None:
        """Close the connection; one that stays open would hold the server's stop."""
        self._channel.close()

    def server_is_ready(self) -> bool:
        """The server's own word, asked for at most one second."""
        try:
            return bool(self._stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=1).ready)
        except grpc.RpcError:
            return False

    def server_is_live(self, timeout_s: float = 1.0) -> bool:
        """The server answers, whatever its models do."""
        try:
            request = service_pb2.ServerLiveRequest()
            return bool(self._stub.ServerLive(request, timeout=timeout_s).live)
        except grpc.RpcError:
            return False

    def model_is_ready(self, name: str) -> bool:
        """The server's own word, which is yes of a model whose process has died, and no of one that
        is being loaded or unloaded."""
        request = service_pb2.ModelReadyRequest(name=name)
        try:
            return bool(self._stub.ModelReady(request, timeout=READY_TIMEOUT_S).ready)
        except grpc.RpcError:
            return False

    def infer(self, config: Any, timeout_s: float) -> None:
        """One small inference of a model; ServerFailed with its reason when it does not answer."""
        self.ask(probe_request(config), timeout_s)

    def ask(self, request: Any, timeout_s: float) -> None:
        """Have a request answered; ServerFailed with the reason when it is not.

        By a stream, which plain and decoupled models serve alike. It is read to its end: a stream
        that is dropped sooner may keep its model from ever being unloaded.
        """
        name, answered, failed = request.model_name, False, ""
        try:
            for answer in self._stub.ModelStreamInfer(iter([request]), timeout=timeout_s):
                failed = failed or answer.error_message
                answered = True
        except grpc.RpcError as fault:
            if not failed:
                raise ServerFailed(f"model {name!r} gave no answer: {fault.details()}") from fault
        if failed:
            raise ServerFailed(f"model {name!r} failed: {failed}")
        if not answered:
            raise ServerFailed(f"model {name!r} ended its answer without a response")

    def told(self, request: Any, timeout_s: float) -> Any:
        """What an order is answered with in EVENTS, or the EVENT of calls. ServerFailed when there
        is nothing."""
        found, failed = None, ""
        try:
            for answer in self._stub.ModelStreamInfer(iter([request]), timeout=timeout_s):
                failed = failed or answer.error_message
                arrays = wire.to_arrays(answer.infer_response)
                for name in arrays.keys() & {"EVENTS", "EVENT"}:
                    found = json.loads(arrays[name].flat[0])
        except grpc.RpcError as fault:
            if not failed:
                raise ServerFailed(f"{request.model_name!r}: {fault.details()}") from fault
        if failed:
            raise ServerFailed(f"{request.model_name!r} failed: {failed}")
        if found is None:
            raise ServerFailed(f"model {request.model_name!r} told nothing")
        return found

    def load(self, name: str, timeout_s: float = LOAD_TIMEOUT_S) -> None:
        """Load a model, or what its folder has become: the server goes on with what it had until
        that is ready. ServerFailed with the reason when it cannot."""
        load = service_pb2.RepositoryModelLoadRequest(model_name=name)
        try:
            self._stub.RepositoryModelLoad(load, timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as fault:
            why, *_ = str(fault.details()).splitlines() or [""]  # a traceback follows
            raise ServerFailed(f"model {name!r} was not loaded: {why}") from fault

    def unload(self, name: str, timeout_s: float = LOAD_TIMEOUT_S) -> None:
        """Have a model end what is open and go. ServerFailed when the server does not take it."""
        unload = service_pb2.RepositoryModelUnloadRequest(model_name=name)
        try:
            self._stub.RepositoryModelUnload(unload, timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as fault:
            raise ServerFailed(f"model {name!r} was not unloaded: {fault.details()}") from fault

    def reload(self, name: str, timeout_s: float = LOAD_TIMEOUT_S) -> None:
        """Unload and load a model: the only way back after the death of its stub.

        ServerFailed when the server cannot, or not in time.
        """
        self.unload(name, timeout_s)
        self.load(name, timeout_s)


@contextmanager
def probing(address: str, access: Access = OPEN) -> Iterator[Probe]:
    """A Probe that is closed at the end. OSError when a certificate of `access` cannot be read."""
    probe = Probe(address, access)
    try:
        yield probe
    finally:
        probe.close()


def _as_sequence(request: Any, config: Any) -> None:
    """Make it one by itself, where the model takes nothing else."""
    if config.HasField("sequence_batching"):
        request.parameters["sequence_id"].string_param = f"{SEQUENCE_ID}-{uuid.uuid4().hex[:8]}"
        request.parameters["sequence_start"].bool_param = True
        request.parameters["sequence_end"].bool_param = True


def _add_input(request: Any, config: Any, tensor: Any) -> None:
    batch = [1] if config.max_batch_size else []
    shape = batch + [VARIABLE_DIM if dim < 0 else dim for dim in tensor.dims]
    datatype = _datatype(tensor)
    request.inputs.add(name=tensor.name, datatype=datatype, shape=shape)
    if datatype == "BYTES":
        word = PROBE if tensor.name == "CONTROL" else b""
        request.raw_input_contents.append(_length_prefixed(word) * int(np.prod(shape)))
    else:
        values: NDArray[Any] = np.full(shape, _fill(tensor.name, datatype, config.backend))
        dtype = triton_to_np_dtype(datatype)
        request.raw_input_contents.append(values.astype(dtype).tobytes())


def _fill(name: str, datatype: str, backend: str) -> int:
    """Ones where a graph may take an integer for a length, which zero would make void."""
    if name == "COMMAND":
        return PROBE_COMMAND
    return 1 if backend in NATIVE_BACKENDS and "INT" in datatype else 0


def _datatype(tensor: Any) -> str:
    name = str(model_config_pb2.DataType.Name(tensor.data_type)).removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name


def _length_prefixed(word: bytes) -> bytes:
    return struct.pack("<I", len(word)) + word
