"""The voice's graphs for the model repository, from the weights in git alone."""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import onnx
import torch
from torch import Tensor, nn

from build.voice import weights
from build.voice.flow_decoder import CONDITION
from build.voice.prosody_graph import Form, step_model
from build.voice.prosody_lm import ProsodyLM
from python_backends.speech import CHANNELS, LATENT, NOISE

NATIVE_OPSET: Final = 17
"""Of the graphs that Triton's own backends serve; its IR version is 8."""

_BATCH: Final = "B"
Axes = dict[str, dict[int, str]]


def export_acoustic_condition(target: Path) -> None:
    """PHONEME, PITCH, FRAME_PHONEME, FRAME_POSITION, VOICE, STRIDE -> CONDITION."""
    tokens, frames = torch.zeros(2, 9, dtype=torch.int64), torch.zeros(2, 20, dtype=torch.int64)
    _export(
        weights.load_flow().condition,
        {
            "PHONEME": tokens,
            "PITCH": tokens,
            "FRAME_PHONEME": frames,
            "FRAME_POSITION": torch.zeros(2, 20, 3),
            "VOICE": torch.zeros(2, 1, dtype=torch.int64),
            "STRIDE": torch.zeros(2, 1, dtype=torch.int64),
        },
        {"CONDITION": {0: _BATCH, 1: "T"}},
        {"PHONEME": "P", "PITCH": "P", "FRAME_PHONEME": "T", "FRAME_POSITION": "T"},
        target,
    )


def export_acoustic_step(target: Path) -> None:
    """X, TIME, CONDITION, LENGTH -> VELOCITY."""
    _export(
        weights.load_flow(),
        {
            "X": torch.zeros(2, 20, CHANNELS),
            "TIME": torch.zeros(2, 1),
            "CONDITION": torch.zeros(2, 20, CONDITION),
            "LENGTH": torch.full((2, 1), 20),
        },
        {"VELOCITY": {0: _BATCH, 1: "T"}},
        {"X": "T", "CONDITION": "T"},
        target,
    )


def export_vocoder(target: Path) -> None:
    """LATENT, F0, VOICED, PHASE, NOISE, VOICE -> SPEECH, SAMPLE_RATE."""
    flat = torch.full((2, 20), 100.0)
    _export(
        weights.load_vocoder(),
        {
            "LATENT": torch.zeros(2, 20, LATENT),
            "F0": flat,
            "VOICED": flat,
            "PHASE": flat,
            "NOISE": torch.zeros(2, 20, NOISE),
            "VOICE": torch.zeros(2, 1, dtype=torch.int64),
        },
        {"SPEECH": {0: _BATCH, 1: "S"}, "SAMPLE_RATE": {0: _BATCH}},
        dict.fromkeys(("LATENT", "F0", "VOICED", "PHASE", "NOISE"), "F"),
        target,
    )


class _Admission(nn.Module):
    """The encoder of the prosody LM, run once an utterance."""

    def __init__(self, lm: ProsodyLM) -> None:
        super().__init__()
        self._lm = lm

    def forward(self, phonemes: Tensor, voice: Tensor) -> Tensor:
        return self._lm.encode(phonemes, voice)


def export_prosody_admission(target: Path) -> None:
    """PHONEMES int64 [B, P], VOICE int64 [B, 1] -> enc float32 [B, P, 192]; rows are not padded."""
    _export(
        _Admission(weights.load_prosody()),
        {
            "PHONEMES": torch.zeros(2, 9, dtype=torch.int64),
            "VOICE": torch.zeros(2, 1, dtype=torch.int64),
        },
        {"enc": {0: _BATCH, 1: "P"}},
        {"PHONEMES": "P"},
        target,
    )


def export_prosody_step(target: Path) -> None:
    """The step of the prosody LM for ONNX Runtime on a CPU."""
    _save_step(target, "gqa")


def export_prosody_step_portable(target: Path) -> None:
    """The same step in standard ops with an explicit mask, for other runtimes."""
    _save_step(target, "portable")


def export_speech(target: Path) -> None:
    """How the acoustic stage scales F0 and advances the phase."""
    shutil.copyfile(weights.SPEECH, target)


TARGETS: Final[dict[tuple[str, str], Callable[[Path], None]]] = {
    ("acoustic_condition", "model.onnx"): export_acoustic_condition,
    ("acoustic_step", "model.onnx"): export_acoustic_step,
    ("vocoder", "model.onnx"): export_vocoder,
    ("prosody_step", "model.onnx"): export_prosody_step,
    ("prosody_step", "portable.onnx"): export_prosody_step_portable,
    ("prosody_step", "admit.onnx"): export_prosody_admission,
    ("acoustic", "speech.json"): export_speech,
}
"""(model, file in its version folder) -> what writes it."""

SOURCES: Final[dict[tuple[str, str], tuple[Path, ...]]] = {
    ("acoustic_condition", "model.onnx"): (weights.FLOW,),
    ("acoustic_step", "model.onnx"): (weights.FLOW,),
    ("vocoder", "model.onnx"): (weights.VOCODER,),
    ("prosody_step", "model.onnx"): (weights.PROSODY,),
    ("prosody_step", "portable.onnx"): (weights.PROSODY,),
    ("prosody_step", "admit.onnx"): (weights.PROSODY,),
    ("acoustic", "speech.json"): (weights.SPEECH,),
}
"""The weight files each target is made from; with the exporter's code they are its provenance."""


def _save_step(target: Path, form: Form) -> None:
    onnx.save(step_model(weights.load_prosody(), form), target)


def _export(
    module: nn.Module,
    inputs: dict[str, Tensor],
    outputs: Axes,
    time_axis: dict[str, str],
    target: Path,
) -> None:
    """Traces a module; batch is dynamic everywhere, axis 1 where `time_axis` names it."""
    axes: Axes = {name: {0: _BATCH} for name in inputs} | outputs
    for name, axis in time_axis.items():
        axes[name][1] = axis
    options: dict[str, Any] = {
        "input_names": list(inputs),
        "output_names": list(outputs),
        "dynamic_axes": axes,
        "opset_version": NATIVE_OPSET,
        "dynamo": False,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, tuple(inputs.values()), target, **options)
