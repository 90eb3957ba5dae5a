"""The decode step of a Llama as a step graph."""

import numpy as np
import onnx
import torch

from build.llama.config import LlamaConfig
from build.llama.model import Block, Llama, rotary_angles
from build.step_graph import Floats, HeadNorms, Rotary, StepGraph, StepSizes


def step_model(
    model: Llama, kernels: type[StepGraph], capacity: int | str, *, positions: int
) -> onnx.ModelProto:
    """The fp32 step graph of `model`, with pools of `capacity`, for up to `positions` tokens."""
    sizes = model.sizes
    step = kernels(
        "think_step",
        StepSizes(sizes.layers, sizes.heads, sizes.kv_heads, sizes.head_width, capacity),
        _rotary(sizes, positions),
    )
    embedding = _array(model.embedding.weight)
    y, residual = step.graph.op("Gather", step.graph.weight("embedding", embedding), "ids"), ""
    for layer in range(sizes.layers):
        y, residual = _block(step, layer, model.block(layer), y, residual)
    y, _ = _norm(step, "norm", model.norm.weight, step.last(y), step.last(residual), sizes.epsilon)
    head = step.graph.weight("head", _array(model.head_weight).T)
    logits = step.graph.op("MatMul", y, head, out="logits")
    return step.finish(logits, sizes.vocabulary)


def _block(step: StepGraph, layer: int, block: Block, y: str, residual: str) -> tuple[str, str]:
    """One layer: (what it adds to the residual stream, the stream before that)."""
    name, epsilon = f"block{layer}", block.sizes.epsilon
    h, residual = _norm(
        step, f"{name}.attention_norm", block.attention_norm.weight, y, residual, epsilon
    )
    qkv = _linear(step, f"{name}.qkv", h, block.query, block.key, block.value)
    mixed = step.attend(layer, qkv, _head_norms(step, name, block))
    y = _linear(step, f"{name}.output", mixed, block.output)
    h, residual = _norm(step, f"{name}.ffn_norm", block.ffn_norm.weight, y, residual, epsilon)
    both = _linear(step, f"{name}.gate_up", h, block.gate, block.up)
    gate, up = step.graph.ops("Split", both, out=2, axis=-1, num_outputs=2)
    silu = step.graph.op("Mul", gate, step.graph.op("Sigmoid", gate))
    inner = step.graph.op("Mul", silu, up)
    return _linear(step, f"{name}.down", inner, block.down), residual


def _linear(step: StepGraph, name: str, x: str, *parts: torch.nn.Linear) -> str:
    """Products of the same x as one, side by side."""
    weight = torch.cat([part.weight for part in parts])
    biases: list[torch.Tensor] = [part.bias for part in parts if part.bias is not None]
    return step.linear(x, name, _array(weight), _array(torch.cat(biases)) if biases else None)


def _head_norms(step: StepGraph, name: str, block: Block) -> HeadNorms | None:
    if block.query_norm is None or block.key_norm is None:
        return None
    query, key = (
        step.graph.weight(f"{name}.{side}_norm", _array(norm.weight))
        for side, norm in (("query", block.query_norm), ("key", block.key_norm))
    )
    return HeadNorms(query, key, block.sizes.epsilon)


def _norm(
    step: StepGraph, name: str, weight: torch.Tensor, x: str, residual: str, epsilon: float
) -> tuple[str, str]:
    return step.add_norm(x, residual, step.graph.weight(name, _array(weight)), epsilon)


def _rotary(sizes: LlamaConfig, positions: int) -> Rotary:
    angles, factor = rotary_angles(torch.arange(positions), sizes), sizes.rope.factor
    return Rotary(_array(factor * angles.cos()), _array(factor * angles.sin()))


def _array(weight: torch.Tensor) -> Floats:
    return weight.detach().numpy().astype(np.float32, copy=False)
