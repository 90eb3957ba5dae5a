"""SmolLM2 with the ordering LoRA merged: step graphs of `think_step`, tokenizer of `think`."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch

from build.optional_head import with_optional_head
from build.quantize import int8_weights
from build.smollm import lora, weights
from build.smollm.model import Block, Llama, rotary_angles
from build.step_graph import (
    Floats,
    FusedKernels,
    PortableKernels,
    Rotary,
    StepGraph,
    StepSizes,
)

ROTARY_POSITIONS = 1024
CAPACITY = 768
"""Positions of a slot in the portable graph; the fused one takes pools of any capacity."""


def merged_model() -> Llama:
    """SmolLM2 with the committed adapters added into its weights."""
    model = Llama(weights.config())
    model.load_state_dict(weights.state_dict())
    return lora.merge(model, lora.load(lora.ADAPTERS)).eval()


def step_model(model: Llama, kernels: type[StepGraph], capacity: int | str) -> onnx.ModelProto:
    """The fp32 step graph of `model`."""
    sizes = model.sizes
    step = kernels(
        "think_step",
        StepSizes(sizes.layers, sizes.heads, sizes.kv_heads, sizes.head_width, capacity),
        _rotary(model),
    )
    embedding = _array(model.embedding.weight)
    y, residual = step.graph.op("Gather", step.graph.weight("embedding", embedding), "ids"), ""
    for layer in range(sizes.layers):
        y, residual = _block(step, layer, model.block(layer), y, residual)
    y, _ = _norm(step, "norm", model.norm.weight, step.last(y), step.last(residual), sizes.epsilon)
    logits = step.graph.op("MatMul", y, step.graph.weight("head", embedding.T), out="logits")
    return step.finish(logits, sizes.vocabulary)


def _block(step: StepGraph, layer: int, block: Block, y: str, residual: str) -> tuple[str, str]:
    """One layer: (what it adds to the residual stream, the stream before that)."""
    name, epsilon = f"block{layer}", block.sizes.epsilon
    h, residual = _norm(
        step, f"{name}.attention_norm", block.attention_norm.weight, y, residual, epsilon
    )
    qkv = torch.cat([block.query.weight, block.key.weight, block.value.weight])
    mixed = step.attend(layer, step.linear(h, f"{name}.qkv", _array(qkv)))
    y = step.linear(mixed, f"{name}.output", _array(block.output.weight))
    h, residual = _norm(step, f"{name}.ffn_norm", block.ffn_norm.weight, y, residual, epsilon)
    both = _array(torch.cat([block.gate.weight, block.up.weight]))
    gate, up = step.graph.ops(
        "Split", step.linear(h, f"{name}.gate_up", both), out=2, axis=-1, num_outputs=2
    )
    silu = step.graph.op("Mul", gate, step.graph.op("Sigmoid", gate))
    inner = step.graph.op("Mul", silu, up)
    return step.linear(inner, f"{name}.down", _array(block.down.weight)), residual


def _norm(
    step: StepGraph, name: str, weight: torch.Tensor, x: str, residual: str, epsilon: float
) -> tuple[str, str]:
    return step.add_norm(x, residual, step.graph.weight(name, _array(weight)), epsilon)


def _rotary(model: Llama) -> Rotary:
    angles = rotary_angles(torch.arange(ROTARY_POSITIONS), model.sizes)
    return Rotary(_array(angles.cos()), _array(angles.sin()))


def _array(weight: torch.Tensor) -> Floats:
    return weight.detach().numpy().astype(np.float32, copy=False)


def export_step(target: Path) -> None:
    """think_step/1/model.onnx: fused kernels, int8 weights, pools of any capacity."""
    save_step(merged_model(), target)


def save_step(model: Llama, target: Path) -> None:
    """The graph that is served, of any weights."""
    step = int8_weights(step_model(model, FusedKernels, "S"))
    onnx.save(with_optional_head(step), target)


def export_portable(target: Path) -> None:
    """think_step/1/portable.onnx: standard operators, fp32."""
    onnx.save(step_model(merged_model(), PortableKernels, CAPACITY), target)


def export_generation(target: Path) -> None:
    """think_step/1/generation.json: the ids that end an answer."""
    target.write_text(json.dumps({"end": [weights.end_token()]}))


def export_tokenizer(target: Path) -> None:
    """think/1/tokenizer.json."""
    weights.tokenizer().save(str(target))


TARGETS: dict[tuple[str, str], Callable[[Path], None]] = {
    ("think_step", "model.onnx"): export_step,
    ("think_step", "generation.json"): export_generation,
    ("think", "tokenizer.json"): export_tokenizer,
}
PORTABLE: dict[tuple[str, str], Callable[[Path], None]] = {
    ("think_step", "portable.onnx"): export_portable,
}
"""Opt-in: 650 MB, used by the slower proofs and by TensorRT."""


def sources() -> list[Path]:
    """The weights files the artefacts are made of."""
    return [weights.path(), lora.ADAPTERS]
