"""An ONNX file as the native onnxruntime backend would accept it, run on CPU."""

import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from python_backends.contract import ArtefactRefused, Tensors, require_fit

MAX_OPSET = 18
MAX_IR = 9
"""What this project allows itself, for stock Triton images of some years to load."""

TYPES = {
    "tensor(float)": "TYPE_FP32",
    "tensor(float16)": "TYPE_FP16",
    "tensor(double)": "TYPE_FP64",
    "tensor(int64)": "TYPE_INT64",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int16)": "TYPE_INT16",
    "tensor(int8)": "TYPE_INT8",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(bool)": "TYPE_BOOL",
}
STANDARD = ("", "ai.onnx")
Arrays = Mapping[str, NDArray[Any]]


class Graph:
    """One session of one model. Inputs and outputs are batch-leading when max_batch_size > 0."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        _check_artefact(path, config["name"])
        self._session = _session(path, config)
        self.inputs = [tensor.name for tensor in self._session.get_inputs()]
        self.outputs = [tensor.name for tensor in self._session.get_outputs()]
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        require_fit(config, _tensors(inputs), _tensors(outputs))

    def run(self, feeds: Arrays, outputs: list[str]) -> dict[str, NDArray[Any]]:
        """The named outputs of one call. Inputs are bound where they lie, without a copy."""
        binding = self._session.io_binding()
        for name in self.inputs:
            binding.bind_cpu_input(name, np.ascontiguousarray(feeds[name]))
        for name in outputs:
            binding.bind_output(name)
        self._session.run_with_iobinding(binding)
        values = (value.numpy() for value in binding.get_outputs())
        return dict(zip(outputs, values, strict=True))


def header(path: Path) -> tuple[int, dict[str, int]]:
    """IR version, and opset version by domain, of an ONNX file; its weights are not read.

    ModelProto: field 1 ir_version, field 8 opset_import {1: domain, 2: version} (onnx.proto).
    """
    ir_version, opsets = 0, {}
    with path.open("rb") as file:
        for number, value in _fields(file):
            if number == 1 and isinstance(value, int):
                ir_version = value
            elif number == 8 and isinstance(value, bytes):
                domain, version = _opset(value)
                opsets[domain] = version
    return ir_version, opsets


def _check_artefact(path: Path, model: str) -> None:
    if not path.exists():
        raise ArtefactRefused(
            f"model {model!r} has no {path.parent.name}/{path.name}; run: make build"
        )
    try:
        ir_version, opsets = header(path)
    except (ValueError, IndexError):
        ir_version, opsets = 0, {}
    if not ir_version or not opsets:
        raise ArtefactRefused(
            f"{path.name} of model {model!r} ({path.stat().st_size} bytes) is no ONNX file; "
            "run: make build"
        )
    opset = max(opsets.get(domain, 0) for domain in STANDARD)
    if ir_version > MAX_IR or opset > MAX_OPSET:
        raise ArtefactRefused(
            f"{path.name} of model {model!r} has IR version {ir_version} and opset {opset}; the "
            f"native backend is promised at most {MAX_IR} and {MAX_OPSET}: export it again"
        )


def _session(path: Path, config: Mapping[str, Any]) -> ort.InferenceSession:
    """A CPU session with the threads the config asks for, one where it does not say.

    Memory plans are kept per input shape and pay for fixed shapes only, so they are off.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = _threads(config, "intra_op_thread_count")
    options.inter_op_num_threads = _threads(config, "inter_op_thread_count")
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as fault:
        raise ArtefactRefused(f"{path.name} of model {config['name']!r}: {fault}") from fault


def _threads(config: Mapping[str, Any], key: str) -> int:
    return int(config.get("parameters", {}).get(key, {}).get("string_value", "1"))


def _tensors(found: Iterable[Any]) -> Tensors:
    return {one.name: (TYPES.get(one.type, one.type), one.shape) for one in found}


def _fields(file: BinaryIO) -> Iterator[tuple[int, int | bytes | None]]:
    """Top-level fields of a protobuf message; the bytes of long ones are skipped (None).

    https://protobuf.dev/programming-guides/encoding/
    """
    while (tag := _varint(file)) is not None:
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            yield number, _varint(file)
        elif wire == 2:
            size = _varint(file) or 0
            if number == 8 and size < 1024:
                yield number, file.read(size)
            else:
                file.seek(size, 1)
                yield number, None
        else:
            raise ValueError(f"wire type {wire}")


def _varint(file: BinaryIO) -> int | None:
    result, shift = 0, 0
    while byte := file.read(1):
        result |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return result
        shift += 7
    return None


def _opset(message: bytes) -> tuple[str, int]:
    domain, version = "", 0
    file = io.BytesIO(message)
    while (tag := _varint(file)) is not None:
        value = _varint(file) or 0
        if tag == 0x0A:
            domain = file.read(value).decode()
        else:
            version = value
    return domain, version
