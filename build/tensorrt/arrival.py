"""Did an ONNX graph arrive in TensorRT as it was meant? Counted layer by layer, judged purely.

The importer drops what it does not know (`nonpad_kv_seqlen` of Attention) with a warning at most,
and the engine is then built, runs, and computes something else.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto

COUNTED = {
    "TensorScatter": "KV_CACHE_UPDATE",
    "RotaryEmbedding": "ROTARY_EMBEDDING",
    "Attention": "ATTENTION_INPUT",
    "LayerNormalization": "NORMALIZATION",
    "MatMul": "MATRIX_MULTIPLY",
}
"""Operators of which each becomes one layer of this type."""

ALSO = {"Gemm": "MATRIX_MULTIPLY", "LSTM": "MATRIX_MULTIPLY"}
"""Operators that become layers of these types too, one or more each."""

MASK, LENGTHS = 3, 6
"""Places of `attn_mask` and `nonpad_kv_seqlen` among the inputs of Attention."""

TYPES: dict[int, str] = {
    TensorProto.FLOAT: "FLOAT",
    TensorProto.FLOAT16: "HALF",
    TensorProto.INT32: "INT32",
    TensorProto.INT64: "INT64",
    TensorProto.BOOL: "BOOL",
}


@dataclass(frozen=True)
class Tensor:
    """Of a network: its type as TensorRT names it, and its shape, -1 where it varies."""

    name: str
    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Attention:
    """What one attention of a network is bound to."""

    name: str
    query: Tensor
    mask: Tensor | None
    causal: bool
    lengths: bool
    """Whether it takes the valid length of each row's keys."""


@dataclass(frozen=True)
class Update:
    """One KV pool that a network appends to."""

    pool: str
    updated: str
    linear: bool
    """From each row's own place on, not around the end of the pool."""


@dataclass(frozen=True)
class Network:
    """What the importer made of a graph, and what it said meanwhile."""

    layers: Sequence[str]
    """Type of each layer, as TensorRT names it."""

    attentions: Sequence[Attention]
    updates: Sequence[Update]
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    said: Sequence[str] = ()


def complaints(model: onnx.ModelProto, network: Network) -> list[str]:
    """What did not arrive; nothing: the network means what the graph says."""
    return [
        *_counted(model, network.layers),
        *_attentions(model, network.attentions),
        *_updates(model, network.updates),
        *_tensors(model.graph.input, network.inputs, "input"),
        *_tensors(model.graph.output, network.outputs, "output"),
        *(f"the importer said: {line}" for line in network.said if "unused input" in line.lower()),
    ]


def _counted(model: onnx.ModelProto, layers: Iterable[str]) -> list[str]:
    meant, arrived = Counter(node.op_type for node in model.graph.node), Counter(layers)
    wrong = []
    for operator, layer in COUNTED.items():
        more = any(meant[other] for other, made in ALSO.items() if made == layer)
        fits = arrived[layer] >= meant[operator] if more else arrived[layer] == meant[operator]
        if not fits:
            wrong.append(f"{meant[operator]} {operator} became {arrived[layer]} {layer}")
    return wrong


def _attentions(model: onnx.ModelProto, found: Sequence[Attention]) -> list[str]:
    """Graph and network have them in the same order."""
    nodes = [node for node in model.graph.node if node.op_type == "Attention"]
    if len(nodes) != len(found):
        return []  # told by the counts
    return [text for pair in zip(nodes, found, strict=True) for text in _attention(*pair)]


def _attention(node: onnx.NodeProto, found: Attention) -> list[str]:
    wrong = []
    causal = any(one.name == "is_causal" and one.i for one in node.attribute)
    if _takes(node, MASK) and found.mask is None:
        wrong.append("its mask was dropped")
    if found.mask is not None and found.mask.kind not in ("BOOL", found.query.kind):
        wrong.append(f"its mask is {found.mask.kind}, its query {found.query.kind}")
    if _takes(node, LENGTHS) and not found.lengths:
        wrong.append("nonpad_kv_seqlen was dropped: it attends beyond each row's own keys")
    if causal != found.causal:
        wrong.append(f"is_causal is {causal} in the graph, {found.causal} in the network")
    return [f"{node.name or found.name}: {text}" for text in wrong]


def _updates(model: onnx.ModelProto, found: Iterable[Update]) -> list[str]:
    modes = {
        (node.input[0], node.output[0]): not any(
            one.name == "mode" and one.s == b"circular" for one in node.attribute
        )
        for node in model.graph.node
        if node.op_type == "TensorScatter"
    }
    arrived = {(one.pool, one.updated): one.linear for one in found}
    return [
        f"pool {pool} to {updated}: not appended to as the graph says"
        for (pool, updated), linear in sorted(modes.items())
        if arrived.get((pool, updated)) != linear
    ]


def _takes(node: onnx.NodeProto, place: int) -> bool:
    return len(node.input) > place and bool(node.input[place])


def _tensors(
    values: Iterable[onnx.ValueInfoProto], found: Iterable[Tensor], side: str
) -> list[str]:
    kinds = {value.name: value.type.tensor_type.elem_type for value in values}
    meant = {name: TYPES.get(kind, str(kind)) for name, kind in kinds.items()}
    arrived = {tensor.name: tensor.kind for tensor in found}
    if meant == arrived:
        return []
    return [
        f"{side} {name}: {meant.get(name, 'not there')} in the graph,"
        f" {arrived.get(name, 'not there')} in the network"
        for name in sorted(meant.keys() | arrived.keys())
        if meant.get(name) != arrived.get(name)
    ]
