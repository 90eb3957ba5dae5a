"""Operations and bytes that an executed ONNX node cannot do without, from its shapes. Pure.

Only multiplications of matrices and their kin are counted, two operations a multiply-add (the
roofline's convention, Williams et al. 2009, doi:10.1145/1498765.1498785); what a causal attention
may skip is not counted. Element-wise operators, normalisation and moves count none: they are known
by name, so that whatever is on neither list is told.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]
FLOAT, INT8, BLOCKS = "fp32", "int8", "int8 blocks"
KINDS = (FLOAT, INT8, BLOCKS)
"""BLOCKS: int8 with a scale for every few dozen weights, which costs operations that nobody counts,
so that its peak is lower."""

KV_BYTES = 4
"""Of a number in a KV cache."""

INT8_LEVEL = 4
"""MatMulNBits' accuracy_level that multiplies in int8."""


@dataclass(frozen=True)
class Executed:
    """A node as it was run. An input or output that was left out has an empty name."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Tensors:
    """What is known of the tensors of one run."""

    shapes: Mapping[str, Shape]
    stored: Mapping[str, int]
    """Bytes of the weights and of the graph's inputs and outputs."""

    pools: frozenset[str] = frozenset()
    """Inputs and outputs that are a KV pool: of them only what attention touches is counted."""

    starts: tuple[int, ...] = ()
    """Tokens that each row's KV cache holds before the run."""


@dataclass
class Cost:
    """Of one run of a graph."""

    operations: Counter[str] = field(default_factory=Counter)
    """Kind -> operations."""

    nbytes: int = 0
    """Weights as stored, inputs, outputs, KV read and written: each once, whatever the caches."""

    uncounted: Counter[str] = field(default_factory=Counter)
    """Operators that are on no list -> how often they were run."""

    @property
    def total(self) -> int:
        """Operations of all kinds."""
        return sum(self.operations.values())

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.total / self.nbytes


def cost_of(nodes: Iterable[Executed], tensors: Tensors) -> Cost:
    """Of a run of these nodes."""
    cost = Cost()
    touched: dict[str, int] = {}
    for node in nodes:
        if node.op in HEAVY:
            cost.operations[_kind(node)] += HEAVY[node.op](node, tensors)
        elif node.op not in LIGHT:
            cost.uncounted[node.op] += 1
        if node.op == "GroupQueryAttention":
            cost.nbytes += _kv_bytes(node, tensors)
        for name in {*node.inputs, *node.outputs} & tensors.stored.keys() - tensors.pools:
            touched[name] = max(touched.get(name, 0), _touched(node, name, tensors))
    cost.nbytes += sum(touched.values())
    return cost


def _kind(node: Executed) -> str:
    if node.op == "MatMulNBits":
        return BLOCKS if node.attributes.get("accuracy_level") == INT8_LEVEL else FLOAT
    return INT8 if node.op in INTEGER else FLOAT


def _touched(node: Executed, name: str, tensors: Tensors) -> int:
    """Of a table from which rows are gathered, only these."""
    whole = tensors.stored[name]
    if node.op in GATHERS and name == node.inputs[0]:
        rows = math.prod(tensors.shapes[node.outputs[0]])
        return min(whole, whole * rows // max(1, math.prod(tensors.shapes[name])))
    return whole


def _matmul(node: Executed, tensors: Tensors) -> int:
    """[..., M, K] x [..., K, N]."""
    return 2 * _elements(tensors, node.outputs[0]) * tensors.shapes[node.inputs[0]][-1]


def _nbits(node: Executed, tensors: Tensors) -> int:
    """[..., M, K] x [K, N], which is stored in blocks."""
    return 2 * _elements(tensors, node.outputs[0]) * int(node.attributes["K"])


def _gemm(node: Executed, tensors: Tensors) -> int:
    inner = tensors.shapes[node.inputs[0]][0 if node.attributes.get("transA") else 1]
    return 2 * _elements(tensors, node.outputs[0]) * inner


def _conv(node: Executed, tensors: Tensors) -> int:
    """Weights [out, in / groups, ...kernel]: each output is a sum over all but the first axis."""
    kernel = math.prod(tensors.shapes[node.inputs[1]][1:])
    return 2 * _elements(tensors, node.outputs[0]) * kernel


def _conv_transpose(node: Executed, tensors: Tensors) -> int:
    """Weights [in, out / groups, ...kernel]: each input is spread over all but the first axis."""
    kernel = math.prod(tensors.shapes[node.inputs[1]][1:])
    return 2 * _elements(tensors, node.inputs[0]) * kernel


def _attention(node: Executed, tensors: Tensors) -> int:
    """Q [B, heads, T, D] and K, V [B, KV heads, C, D], dense: scores and their sum of values."""
    batch, heads, queries, width = tensors.shapes[node.inputs[0]]
    keys, values = (tensors.shapes[name] for name in node.inputs[1:3])
    return 2 * batch * heads * queries * keys[2] * (width + values[3])


def _group_query(node: Executed, tensors: Tensors) -> int:
    """Token t of a chunk behind `start` others attends to start + t + 1; past K is
    [B, KV heads, S, D], see onnxruntime's ContribOperators.md."""
    heads, width = int(node.attributes["num_heads"]), tensors.shapes[node.inputs[3]][3]
    tokens = tensors.shapes[node.inputs[0]][1]
    pairs = sum(start + token + 1 for start in tensors.starts for token in range(tokens))
    return 2 * 2 * heads * width * pairs


def _kv_bytes(node: Executed, tensors: Tensors) -> int:
    """Past K and V read, those of the new tokens written."""
    _, heads, _, width = tensors.shapes[node.inputs[3]]
    tokens = tensors.shapes[node.inputs[0]][1]
    return 2 * KV_BYTES * heads * width * sum(start + tokens for start in tensors.starts)


def _elements(tensors: Tensors, name: str) -> int:
    return math.prod(tensors.shapes[name])


HEAVY: Mapping[str, Callable[[Executed, Tensors], int]] = {
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "DynamicQuantizeMatMul": _matmul,
    "MatMulIntegerToFloat": _matmul,
    "MatMulNBits": _nbits,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvInteger": _conv,
    "ConvTranspose": _conv_transpose,
    "Attention": _attention,
    "GroupQueryAttention": _group_query,
}
INTEGER = frozenset(
    {
        "MatMulInteger",
        "QLinearMatMul",
        "DynamicQuantizeMatMul",
        "MatMulIntegerToFloat",
        "ConvInteger",
    }
)
GATHERS = frozenset({"Gather", "GatherND", "GatherElements"})
_LIGHT = (
    "Abs Add ArgMax Cast Clip Concat Constant ConstantOfShape Cos DequantizeLinear "
    "Div DynamicQuantizeLinear Equal Erf Exp Expand Flatten Floor Gelu Greater "
    "GreaterOrEqual If LayerNormalization Less LessOrEqual Log Max Min Mul Neg Pad "
    "Pow QuantizeLinear RMSNormalization Range Reciprocal ReduceMax ReduceMean "
    "ReduceSum Relu Reshape Shape Sigmoid SimplifiedLayerNormalization Sin "
    "SkipLayerNormalization SkipSimplifiedLayerNormalization Slice Softmax Split Sqrt "
    "Squeeze Sub Tanh Transpose Unsqueeze Where"
)
LIGHT = GATHERS | frozenset(_LIGHT.split())
"""Counted as none. `If` is its branch, whose nodes are counted."""
