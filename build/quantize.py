"""Matrix products in int8: of the step graphs by their weights, of the encoder by its rows too."""

import logging
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from build.onnx_graph import FLOAT

BITS, BLOCK, ACCURACY_LEVEL = 8, 64, 4
"""Block 64 is a tenth faster than 32, and a row's result is bit for bit the same in any company;
with 128 it is not. Level 4 multiplies in int8 (measured: level 0 is 30 times slower)."""

LARGEST, MIDDLE = 127, 128
"""Of an int8 weight's size; and what stands for zero among the uint8 of a row."""

SMALLEST_SCALE = 1e-12
"""A row of zeros has one too."""


def int8_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with each constant MatMul as com.microsoft MatMulNBits.

    Activations and the KV cache stay fp32.
    """
    logging.getLogger("onnxruntime.quantization.matmul_nbits_quantizer").setLevel(logging.WARNING)
    quantizer = MatMulNBitsQuantizer(
        model, bits=BITS, block_size=BLOCK, is_symmetric=False, accuracy_level=ACCURACY_LEVEL
    )
    quantizer.process()
    quantized: onnx.ModelProto = quantizer.model.model
    return quantized


def int8_rows(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with each MatMul by a constant matrix in int8: standard operators, row by row.

    A row of activations [..., in] is divided by its own largest value, a column of the weight
    [in, out] by its own. So a row's result does not depend on the rows beside it, as it does where
    a whole tensor shares one scale (ONNX's DynamicQuantizeLinear).

    An x86 core without VNNI adds two of these products in 16 bits, which may saturate (ONNX Runtime
    pull request 12088): of Whisper's encoder on three sample orders 5 pairs in 100,000, which is
    3 % of the size of its worst product.
    """
    rewritten = onnx.ModelProto()
    rewritten.CopyFrom(model)
    graph = rewritten.graph
    matrices = {one.name for one in graph.initializer if _is_matrix(one)}
    weights: set[str] = set()
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in matrices:
            weights.add(node.input[1])
            nodes += _row_product(node)
        else:
            nodes.append(node)
    used = {name for node in nodes for name in node.input}
    constants = [one for one in graph.initializer if one.name not in weights - used]
    for one in graph.initializer:
        if one.name in weights:
            values, scale = int8_columns(numpy_helper.to_array(one))
            constants += [
                _constant(f"{one.name}.int8", values),
                _constant(f"{one.name}.scale", scale),
            ]
    constants += [_constant(name, value) for name, value in _SHARED.items()]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(constants)
    return rewritten


def int8_columns(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """A weight [in, out] as int8 of the same shape and a scale [out]; their product is near it."""
    scale = np.maximum(np.abs(weight).max(axis=0) / LARGEST, SMALLEST_SCALE).astype(np.float32)
    return np.round(weight / scale).astype(np.int8), scale


_SHARED: dict[str, NDArray[Any]] = {
    "row.share": np.array(1 / LARGEST, np.float32),
    "row.smallest": np.array(SMALLEST_SCALE, np.float32),
    "row.one": np.array(1, np.float32),
    "row.middle": np.array(MIDDLE, np.uint8),
}


def _is_matrix(constant: onnx.TensorProto) -> bool:
    """[in, out] in fp32: what a column has a scale of."""
    return len(constant.dims) == 2 and constant.data_type == FLOAT


def _row_product(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """What stands for the MatMul `node`."""
    (x, weight), (y,) = node.input, node.output
    made: list[onnx.NodeProto] = []

    def op(kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        name = out or f"{y}.{kind}{len(made)}"
        made.append(onnx.helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    largest = op("ReduceMax", op("Abs", x), axes=[-1], keepdims=1)
    scale = op("Max", op("Mul", largest, "row.share"), "row.smallest")
    rounded = op("QuantizeLinear", op("Div", x, scale), "row.one", "row.middle")
    product = op("MatMulInteger", rounded, f"{weight}.int8", "row.middle")
    columns = op("Mul", op("Cast", product, to=FLOAT), f"{weight}.scale")
    op("Mul", columns, scale, out=y)
    return made


def _constant(name: str, value: NDArray[Any]) -> onnx.TensorProto:
    return numpy_helper.from_array(value, name)
