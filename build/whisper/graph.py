"""The graphs of a Whisper: its encoder, the decoder's step, and what admits states to it."""

import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from build.onnx_graph import FLOAT, INT64
from build.quantize import int8_rows
from build.step_graph import Floats, StepGraph, StepSizes
from build.torch_export import export_native
from build.whisper.model import Decoder, DecoderLayer, Encoder

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
        StepSizes(
            sizes.decoder_layers,
            sizes.heads,
            sizes.heads,
            sizes.head_width,
            sizes.decoder_context,
        ),
    )
    graph, embedding = step.graph, _array(decoder.embedding.weight)
    cross = CrossAttention(step)
    tokens = graph.op("Gather", graph.weight("embedding", embedding), "ids")
    places = graph.weight("positions", _array(decoder.positions))
    x = graph.op("Add", tokens, graph.op("Gather", places, step.positions))
    for index in range(sizes.decoder_layers):
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
        """hidden [B, F, width] -> ck0, cv0, ck1, ... each [B, H, F, D]."""
        return [pool for layer in self.decoder.cross(hidden) for pool in layer]


def export_encoder(encoder: Encoder, target: Path) -> None:
    """fp32: MEL [B, mels, T] -> HIDDEN [B, T / 2, width]."""
    export_native(
        encoder,
        [torch.zeros(2, encoder.sizes.mels, 400)],
        target,
        inputs=["MEL"],
        outputs=["HIDDEN"],
        dynamic={"MEL": {0: "B", 2: "T"}, "HIDDEN": {0: "B", 1: "F"}},
    )


def export_admission(decoder: Decoder, target: Path) -> None:
    """fp32: HIDDEN [B, F, width] -> ck{i}, cv{i} [B, H, F, D]."""
    sizes = decoder.sizes
    outputs = [f"c{side}{layer}" for layer in range(sizes.decoder_layers) for side in "kv"]
    export_native(
        Admission(decoder),
        [torch.zeros(2, 200, sizes.width)],
        target,
        inputs=["HIDDEN"],
        outputs=outputs,
        dynamic={"HIDDEN": {0: "B", 1: "F"}} | {name: {0: "B", 2: "F"} for name in outputs},
    )


def in_int8_rows(export: Callable[[Path], None]) -> onnx.ModelProto:
    """What `export` writes in fp32, with its products in int8, row by row."""
    return int8_rows(in_memory(export))


def in_memory(export: Callable[[Path], None]) -> onnx.ModelProto:
    """What `export` writes, in one file or in many beside it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "precise.onnx"
        export(path)
        return onnx.load(path)
