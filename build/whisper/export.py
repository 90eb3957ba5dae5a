"""Whisper tiny.en: encoder graph, decoder step and admission graphs, tokenizer, settings."""

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from build.onnx_graph import FLOAT, INT64
from build.quantize import int8_rows, int8_weights
from build.step_graph import Floats, FusedKernels, PortableKernels, StepGraph, StepSizes
from build.torch_export import export_native
from build.whisper import weights
from build.whisper.model import Decoder, DecoderLayer, load_decoder, load_encoder

_EPSILON = 1e-5


class CrossAttention:
    """Attention to the cross pools `ck{i}`, `cv{i}` [B, H, C, D], valid up to `clen` [B].

    Their width C is left open: Attention computes all of it, so the engine keeps several widths.
    """

    def __init__(self, step: StepGraph) -> None:
        self.step = step
        step.graph.input("clen", INT64, ["B"])

    @cached_property
    def _seen(self) -> str:
        """States each token may attend to: bool [B, 1, T, C]; ORT does not broadcast over T."""
        graph = self.step.graph
        width = graph.op("Squeeze", graph.op("Shape", "ck0", start=2, end=3))
        states = graph.op("Range", graph.scalar(0), width, graph.scalar(1))
        zeros = graph.op("Sub", self.step.positions, self.step.positions)
        valid = graph.op("Add", graph.op("Unsqueeze", "clen", graph.ints(1)), zeros)
        return graph.op("Less", states, graph.op("Unsqueeze", valid, graph.ints(1, 3)))

    def attend(self, layer: int, query: str) -> str:
        """query [B, T, H * D] -> [B, T, H * D]."""
        step, sizes = self.step, self.step.sizes
        pools = [
            step.graph.input(f"c{side}{layer}", FLOAT, ["B", sizes.heads, "C", sizes.head_width])
            for side in "kv"
        ]
        heads = step.split_heads(query, sizes.heads)
        scale = sizes.head_width**-0.5
        return step.merge_heads(step.graph.op("Attention", heads, *pools, self._seen, scale=scale))


def step_model(decoder: Decoder, kernels: type[StepGraph]) -> onnx.ModelProto:
    """The fp32 step graph of the decoder."""
    sizes = decoder.sizes
    step = kernels(
        "asr_decode_step",
        StepSizes(sizes.layers, sizes.heads, sizes.heads, sizes.head_width, sizes.decoder_context),
    )
    graph, embedding = step.graph, _array(decoder.embedding.weight)
    cross = CrossAttention(step)
    tokens = graph.op("Gather", graph.weight("embedding", embedding), "ids")
    places = graph.weight("positions", _array(decoder.positions))
    x = graph.op("Add", tokens, graph.op("Gather", places, step.positions))
    for index in range(sizes.layers):
        x = _layer(step, cross, index, decoder.layer(index), x)
    y = _norm(step, "norm", decoder.norm, step.last(x))
    logits = graph.op("MatMul", y, graph.weight("head", embedding.T), out="logits")
    return step.finish(logits, sizes.vocabulary)


def _layer(step: StepGraph, cross: CrossAttention, index: int, layer: DecoderLayer, x: str) -> str:
    graph, name = step.graph, f"layer{index}"

    def linear(x: str, part: str, module: nn.Linear) -> str:
        return step.linear(x, f"{name}.{part}", _array(module.weight), _array(module.bias))

    h = _norm(step, f"{name}.attention_norm", layer.attention_norm, x)
    mixed = step.attend(index, linear(h, "qkv", layer.qkv))
    x = graph.op("Add", x, linear(mixed, "output", layer.output))
    h = _norm(step, f"{name}.cross_norm", layer.cross_norm, x)
    mixed = cross.attend(index, linear(h, "cross_query", layer.cross_query))
    x = graph.op("Add", x, linear(mixed, "cross_output", layer.cross_output))
    h = _norm(step, f"{name}.ffn_norm", layer.ffn_norm, x)
    inner = graph.op("Gelu", linear(h, "up", layer.up))
    return graph.op("Add", x, linear(inner, "down", layer.down))


def _norm(step: StepGraph, name: str, norm: nn.LayerNorm, x: str) -> str:
    scale = step.graph.weight(name, _array(norm.weight))
    shift = step.graph.weight(f"{name}.bias", _array(norm.bias))
    return step.graph.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=_EPSILON)


def _array(weight: Tensor) -> Floats:
    return weight.detach().numpy().astype(np.float32, copy=False)


class Admission(nn.Module):
    """Hidden states to every layer's cross keys and values, once per admitted utterance."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, hidden: Tensor) -> list[Tensor]:
        """hidden [B, F, 384] -> ck0, cv0, ck1, ... each [B, H, F, D]."""
        return [pool for layer in self.decoder.cross(hidden) for pool in layer]


def export_encoder(target: Path) -> None:
    """asr_encoder/1/model.onnx: products in int8, row by row (measured: `make bench-stages`)."""
    _save_int8_rows(export_portable_encoder, target)


def export_portable_encoder(target: Path) -> None:
    """asr_encoder/1/portable.onnx, fp32: MEL [B, 80, T] -> HIDDEN [B, T / 2, 384]."""
    export_native(
        load_encoder(),
        [torch.zeros(2, 80, 400)],
        target,
        inputs=["MEL"],
        outputs=["HIDDEN"],
        dynamic={"MEL": {0: "B", 2: "T"}, "HIDDEN": {0: "B", 1: "F"}},
    )


def export_step(target: Path) -> None:
    """asr_decode_step/1/model.onnx: fused kernels, int8 weights."""
    onnx.save(int8_weights(step_model(load_decoder(), FusedKernels)), target)


def export_portable(target: Path) -> None:
    """asr_decode_step/1/portable.onnx: standard operators, fp32."""
    onnx.save(step_model(load_decoder(), PortableKernels), target)


def export_admission(target: Path) -> None:
    """asr_decode_step/1/admit.onnx: HIDDEN [B, F, 384] -> ck{i}, cv{i} [B, 6, F, 64], int8 rows."""
    _save_int8_rows(_export_precise_admission, target)


def _export_precise_admission(target: Path) -> None:
    sizes = weights.WhisperConfig()
    outputs = [f"c{side}{layer}" for layer in range(sizes.layers) for side in "kv"]
    export_native(
        Admission(load_decoder()),
        [torch.zeros(2, 200, sizes.width)],
        target,
        inputs=["HIDDEN"],
        outputs=outputs,
        dynamic={"HIDDEN": {0: "B", 1: "F"}} | {name: {0: "B", 2: "F"} for name in outputs},
    )


def _save_int8_rows(export: Callable[[Path], None], target: Path) -> None:
    """What `export` writes in fp32, with its products in int8."""
    with tempfile.TemporaryDirectory() as folder:
        precise = Path(folder) / "precise.onnx"
        export(precise)
        onnx.save(int8_rows(onnx.load(precise)), target)


def export_generation(target: Path) -> None:
    """asr_decode_step/1/generation.json."""
    full = weights.WhisperConfig().encoder_context
    widths = {"context_widths": [full // 2, full]}
    target.write_text(json.dumps(weights.generation() | widths))


def export_tokenizer(target: Path) -> None:
    """asr_decode/1/tokenizer.json."""
    shutil.copyfile(weights.tokenizer_path(), target)


TARGETS: dict[tuple[str, str], Callable[[Path], None]] = {
    ("asr_encoder", "model.onnx"): export_encoder,
    ("asr_encoder", "portable.onnx"): export_portable_encoder,
    ("asr_decode_step", "model.onnx"): export_step,
    ("asr_decode_step", "portable.onnx"): export_portable,
    ("asr_decode_step", "admit.onnx"): export_admission,
    ("asr_decode_step", "generation.json"): export_generation,
    ("asr_decode", "tokenizer.json"): export_tokenizer,
}


def sources() -> list[Path]:
    """The weights files the artefacts are made of."""
    return [weights.path(), weights.generation_path(), weights.tokenizer_path()]
