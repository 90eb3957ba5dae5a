"""Does an exported graph keep its contract? Names, types and shapes against config.pbtxt.

* native models must match their config and be readable by the ONNX Runtime of stock Triton images;
* step graphs must have the slot-pool interface, with pools of the capacity their config names.
"""

import difflib
from pathlib import Path
from typing import Any

import onnx
from google.protobuf import text_format
from onnx import TensorProto
from tritonclient.grpc import model_config_pb2

from build.errors import ContractBroken

NATIVE_OPSET, NATIVE_IR = 18, 9
_TRITON_TYPES = {
    TensorProto.FLOAT: "TYPE_FP32",
    TensorProto.INT32: "TYPE_INT32",
    TensorProto.INT64: "TYPE_INT64",
    TensorProto.BOOL: "TYPE_BOOL",
}
_ANY = -1
_BESIDE_A_STEP = {"admit.onnx", "sampler.onnx"}
"""Graphs of an engine that hold no pools."""

Signature = dict[str, tuple[str, tuple[int, ...]]]
"""Tensor name to (Triton type, dimensions, -1 where they vary)."""


def read_config(path: Path) -> Any:
    """A config.pbtxt as a ModelConfig message; unknown fields are errors."""
    return text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())


def check(config_path: Path, graph_path: Path) -> None:
    """Raise ContractBroken unless the graph keeps the contract its model's config gives it."""
    config = read_config(config_path)
    model = onnx.load(graph_path)
    if config.backend == "onnxruntime":
        _check_readable(model, graph_path)
        _check_signature(config, model)
    elif graph_path.name.removesuffix(".partial") not in _BESIDE_A_STEP:
        _check_pools(config, model)


def _check_readable(model: onnx.ModelProto, path: Path) -> None:
    """Standard operators of an opset and IR version that the native backend knows."""
    opsets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    if set(opsets) != {"ai.onnx"} or opsets["ai.onnx"] > NATIVE_OPSET:
        raise ContractBroken(f"{path}: opsets {opsets}; the native backend has {NATIVE_OPSET}")
    if model.ir_version > NATIVE_IR:
        raise ContractBroken(f"{path}: IR version {model.ir_version}, at most {NATIVE_IR} is read")


def _check_signature(config: Any, model: onnx.ModelProto) -> None:
    inputs, outputs = _configured(config)
    wrong = _differences(inputs, _exported(model.graph.input), "input")
    wrong += _differences(outputs, _exported(model.graph.output), "output")
    if wrong:
        table = "\n".join(wrong)
        raise ContractBroken(f"{config.name}: the graph differs from config.pbtxt\n{table}")


def _configured(config: Any) -> tuple[Signature, Signature]:
    """Inputs and outputs a config promises, states included, the batch dimension in front."""
    batch = (_ANY,) if config.max_batch_size > 0 else ()

    def entry(tensor: Any) -> tuple[str, tuple[int, ...]]:
        kind = model_config_pb2.DataType.Name(tensor.data_type)
        return kind, (*batch, *tensor.dims)

    states = config.sequence_batching.state
    inputs = {tensor.name: entry(tensor) for tensor in config.input}
    outputs = {tensor.name: entry(tensor) for tensor in config.output}
    inputs |= {state.input_name: entry(state) for state in states}
    outputs |= {state.output_name: entry(state) for state in states}
    return inputs, outputs


def _exported(values: Any) -> Signature:
    """Inputs or outputs of a graph."""
    found = {}
    for value in values:
        tensor = value.type.tensor_type
        shape = tuple(
            dim.dim_value if dim.HasField("dim_value") else _ANY for dim in tensor.shape.dim
        )
        kind = _TRITON_TYPES.get(tensor.elem_type, TensorProto.DataType.Name(tensor.elem_type))
        found[value.name] = (kind, shape)
    return found


def _differences(promised: Signature, exported: Signature, side: str) -> list[str]:
    """A diff of both signatures, or nothing; a graph may leave open what the config fixes."""
    opened = {
        name: (kind, _opened(shape, exported[name][1]) if name in exported else shape)
        for name, (kind, shape) in promised.items()
    }
    if opened == exported:
        return []
    ours, theirs = (
        sorted(f"{side} {name}: {kind} {list(shape)}" for name, (kind, shape) in those.items())
        for those in (promised, exported)
    )
    return list(difflib.unified_diff(ours, theirs, "config.pbtxt", "graph", lineterm="", n=0))


def _opened(promised: tuple[int, ...], exported: tuple[int, ...]) -> tuple[int, ...]:
    if len(promised) != len(exported):
        return promised
    pairs = zip(promised, exported, strict=True)
    return tuple(_ANY if ours == _ANY else theirs for theirs, ours in pairs)


def _check_pools(config: Any, model: onnx.ModelProto) -> None:
    """`ids` and `start`, and for each pool `k{i}` an output `ko{i}` of the same shape."""
    inputs, outputs = _exported(model.graph.input), _exported(model.graph.output)
    missing = {"ids", "start", "k0", "v0"} - set(inputs)
    if missing:
        raise ContractBroken(f"{config.name}: a step graph needs the inputs {sorted(missing)}")
    capacity = int(config.parameters["capacity"].string_value)
    for name, (kind, shape) in inputs.items():
        side, number = name[0], name[1:]
        if side not in "kv" or not number.isdigit():
            continue
        if outputs.get(f"{side}o{number}") != (kind, shape):
            raise ContractBroken(f"{config.name}: no output {side}o{number} shaped like {name}")
        if shape[2] not in (_ANY, capacity):
            raise ContractBroken(f"{config.name}: {name} holds {shape[2]}, config: {capacity}")
