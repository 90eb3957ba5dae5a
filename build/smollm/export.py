"""SmolLM2 with the ordering LoRA merged: step graphs of `think_step`, tokenizer of `think`."""

import json
from collections.abc import Callable
from pathlib import Path

import onnx

from build.llama.graph import step_model
from build.llama.model import Llama
from build.optional_head import with_optional_head
from build.quantize import int8_weights
from build.smollm import lora, weights
from build.step_graph import FusedKernels, PortableKernels

ROTARY_POSITIONS = 1024
CAPACITY = 768
"""Positions of a slot in the portable graph; the fused one takes pools of any capacity."""


def merged_model() -> Llama:
    """SmolLM2 with the committed adapters added into its weights."""
    model = Llama(weights.config())
    model.load_state_dict(weights.state_dict())
    return lora.merge(model, lora.load(lora.ADAPTERS)).eval()


def export_step(target: Path) -> None:
    """think_step/1/model.onnx: fused kernels, int8 weights, pools of any capacity."""
    save_step(merged_model(), target)


def save_step(model: Llama, target: Path) -> None:
    """The graph that is served, of any weights."""
    step = int8_weights(step_model(model, FusedKernels, "S", positions=ROTARY_POSITIONS))
    onnx.save(with_optional_head(step), target)


def export_portable(target: Path) -> None:
    """think_step/1/portable.onnx: standard operators, fp32."""
    step = step_model(merged_model(), PortableKernels, CAPACITY, positions=ROTARY_POSITIONS)
    onnx.save(step, target)


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
