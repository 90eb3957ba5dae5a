"""Whisper tiny.en: encoder graph, decoder step and admission graphs, tokenizer, settings."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx

from build.quantize import int8_weights
from build.step_graph import FusedKernels, PortableKernels
from build.whisper import graph, weights
from build.whisper.config import TINY_EN


def export_encoder(target: Path) -> None:
    """asr_encoder/1/model.onnx: products in int8, row by row (measured: `make bench-stages`)."""
    onnx.save(graph.in_int8_rows(export_portable_encoder), target)


def export_portable_encoder(target: Path) -> None:
    """asr_encoder/1/portable.onnx, fp32: MEL [B, 80, T] -> HIDDEN [B, T / 2, 384]."""
    graph.export_encoder(weights.load_encoder(), target)


def export_step(target: Path) -> None:
    """asr_decode_step/1/model.onnx: fused kernels, int8 weights."""
    onnx.save(int8_weights(graph.step_model(weights.load_decoder(), FusedKernels)), target)


def export_portable(target: Path) -> None:
    """asr_decode_step/1/portable.onnx: standard operators, fp32."""
    onnx.save(graph.step_model(weights.load_decoder(), PortableKernels), target)


def export_admission(target: Path) -> None:
    """asr_decode_step/1/admit.onnx: HIDDEN [B, F, 384] -> ck{i}, cv{i} [B, 6, F, 64], int8 rows."""
    precise = partial(graph.export_admission, weights.load_decoder())
    onnx.save(graph.in_int8_rows(precise), target)


def export_generation(target: Path) -> None:
    """asr_decode_step/1/generation.json."""
    full = TINY_EN.encoder_context
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
