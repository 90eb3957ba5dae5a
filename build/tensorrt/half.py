"""An fp32 graph in half precision, but for its inputs and outputs, and for nodes that would suffer.

A strongly typed TensorRT network computes in the types its graph has, so precision is decided here
and not by builder flags. KV pools become half as well: they never leave the device.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16

from build.errors import EngineRefused
from build.tensorrt import gates
from build.tensorrt.gates import Reading

POOL = re.compile(r"c?[kv]o?\d+")
"""Inputs and outputs of step graphs that are KV pools."""

ROUNDS = 5
Feeds = Mapping[str, NDArray[Any]]
Found = dict[str, NDArray[Any]]


def in_half(graph: Path, full: Iterable[str] = ()) -> onnx.ModelProto:
    """The graph in fp16, but for the nodes named `full`; tensors keep their names.

    Inputs and outputs other than KV pools stay fp32, as config.pbtxt has them.
    """
    model = onnx.shape_inference.infer_shapes(onnx.load(graph))
    kept = [
        value.name
        for value in [*model.graph.input, *model.graph.output]
        if not POOL.fullmatch(value.name)
    ]
    converted: onnx.ModelProto = convert_float_to_float16(
        model,
        keep_io_types=kept,
        disable_shape_infer=True,
        op_block_list=[],
        node_block_list=list(full),
    )
    _without_round_trips(converted.graph)
    return converted


def _without_round_trips(graph: onnx.GraphProto) -> None:
    """Nodes in fp32 that follow each other pass fp32 on; the converter casts to fp16 between."""
    halved = {
        node.output[0]: node.input[0] for node in graph.node if _casts_to(node, TensorProto.FLOAT16)
    }
    for node in graph.node:
        if _casts_to(node, TensorProto.FLOAT):
            node.input[0] = halved.get(node.input[0], node.input[0])
    used = {name for node in graph.node for name in node.input}
    used |= {value.name for value in graph.output}
    kept = [node for node in graph.node if node.op_type != "Cast" or node.output[0] in used]
    if len(kept) < len(graph.node):
        del graph.node[:]
        graph.node.extend(kept)


def _casts_to(node: onnx.NodeProto, kind: int) -> bool:
    return node.op_type == "Cast" and any(
        one.name == "to" and one.i == kind for one in node.attribute
    )


def settled(graph: Path, feeds: Feeds) -> tuple[onnx.ModelProto, list[str]]:
    """The graph in fp16 with as many nodes in fp32 as the gates ask for, and their names.

    Raises EngineRefused where the outputs are wrong even so.
    """
    precise = onnx.load(graph)
    # Pools are judged as what is computed on the way: nobody reads them but later steps.
    outputs = {value.name for value in precise.graph.output if not POOL.fullmatch(value.name)}
    truth = evaluate(precise, feeds)
    full: set[str] = set()
    wrong = [f"not judged within {ROUNDS} rounds"]
    for _ in range(ROUNDS):
        model = in_half(graph, full)
        read = readings(precise, truth, evaluate(model, feeds))
        wrong = gates.complaints(one for one in read if one.tensor in outputs)
        more = _around(precise, gates.in_full(read), full) - full
        if not more:
            break
        full |= more
    if wrong:
        raise EngineRefused(
            f"{graph}: wrong in fp16, with {sorted(full)} in fp32: {'; '.join(wrong)}"
        )
    return model, sorted(full)


def evaluate(model: onnx.ModelProto, feeds: Feeds) -> Found:
    """Every floating tensor of a graph, computed by ONNX Runtime on the CPU and rounded to fp16
    where the graph stores it so. (Left to itself, ORT has few fp16 kernels for CPUs, and drops the
    casts between nodes that it computes in fp32: nothing would overflow.)

    Sums within an operator are in fp32, as they are in TensorRT's products and norms.
    """
    shown = _rounding(model)
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    given = {
        name: value.astype(np.float16).astype(np.float32)
        if types[name] == TensorProto.FLOAT16
        else value
        for name, value in feeds.items()
    }
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        shown.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))


def readings(model: onnx.ModelProto, truth: Found, half: Found) -> list[Reading]:
    """Of every tensor that nodes of both graphs give."""
    errors = {name: _error(truth[name], half[name]) for name in truth if name in half}
    return [
        Reading(
            name,
            finite=bool(np.isfinite(half[name]).all()),
            peak=float(np.abs(truth[name]).max(initial=0.0)),
            error=errors[name],
            error_before=max((errors.get(one, 0.0) for one in node.input), default=0.0),
        )
        for node in model.graph.node
        for name in node.output
        if name in errors
    ]


def _around(model: onnx.ModelProto, tensors: Iterable[str], full: set[str]) -> set[str]:
    """Nodes that give or take these tensors: then they are not stored in fp16 between the two.

    Where the node that gives one is in `full` already, it makes much of what its inputs have lost:
    then those that give and take its inputs.
    """
    kept = set(tensors)
    kept |= {
        name
        for node in model.graph.node
        if node.name in full and kept & set(node.output)
        for name in node.input
    }
    kept -= {tensor.name for tensor in model.graph.initializer}
    return {node.name for node in model.graph.node if kept & {*node.input, *node.output}}


def _rounding(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph in fp32 with every fp16 tensor rounded, and all of them outputs."""
    kinds = _kinds(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    del graph.value_info[:], graph.output[:], graph.node[:]
    for value in graph.input:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for tensor in graph.initializer:
        _widen(tensor)
    for node in model.graph.node:
        graph.node.extend(_rounded(node, kinds))
        graph.output.extend(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in node.output
            if kinds.get(name) in (TensorProto.FLOAT, TensorProto.FLOAT16)
        )
    return copy


def _rounded(node: onnx.NodeProto, kinds: Mapping[str, int]) -> list[onnx.NodeProto]:
    """A node that computes in fp32, and casts there and back behind its fp16 outputs."""
    wide = onnx.NodeProto()
    wide.CopyFrom(node)
    for attribute in wide.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            _widen(attribute.t)
        if _casts_to(node, TensorProto.FLOAT16) and attribute.name == "to":
            attribute.i = TensorProto.FLOAT
    made = [wide]
    for place, name in enumerate(node.output):
        if kinds.get(name) == TensorProto.FLOAT16:
            raw, stored = f"{name}/raw", f"{name}/stored"
            wide.output[place] = raw
            made.append(helper.make_node("Cast", [raw], [stored], to=TensorProto.FLOAT16))
            made.append(helper.make_node("Cast", [stored], [name], to=TensorProto.FLOAT))
    return made


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT16:
        value = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def _kinds(model: onnx.ModelProto) -> dict[str, int]:
    """Tensor name to its type, of all that inference can tell."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    values = [*graph.value_info, *graph.input, *graph.output]
    return {value.name: value.type.tensor_type.elem_type for value in values}


def _error(truth: NDArray[Any], half: NDArray[Any]) -> float:
    """Largest difference over the largest value; infinite where half is not finite."""
    if not np.isfinite(half).all():
        return float("inf")
    difference = np.abs(truth - half).max(initial=0.0)
    return float(difference / max(float(np.abs(truth).max(initial=0.0)), 1e-6))
