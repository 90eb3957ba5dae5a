"""The voice in git: `weights/voice/*.safetensors` (fp16) and `speech.json`."""

import json
import math
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import nn

from build.fetch import replacing
from build.voice.corpus import Basis, load_latents
from build.voice.flow_decoder import FlowDecoder
from build.voice.manners import MAKINGS, Making
from build.voice.prosody_lm import ProsodyLM
from build.voice.teacher import head
from build.voice.vocoder import Vocoder, frame_advance
from python_backends.speech import BINS

Model = TypeVar("Model", bound=nn.Module)

_HARMONIC, _NOISE, _FREE = 0, 2, 3
"""Log magnitudes among the five parts of a head."""

FOLDER: Final = Path(__file__).parents[2] / "weights" / "voice"
PROSODY: Final = FOLDER / "prosody_lm.safetensors"
FLOW: Final = FOLDER / "flow_decoder.safetensors"
VOCODER: Final = FOLDER / "vocoder.safetensors"
SPEECH: Final = FOLDER / "speech.json"


def load_prosody() -> ProsodyLM:
    """The prosody LM in float32, for inference."""
    return _load(ProsodyLM(), PROSODY)


def load_flow() -> FlowDecoder:
    """The flow decoder in float32, for inference."""
    return _load(FlowDecoder(), FLOW)


def load_vocoder() -> Vocoder:
    """The vocoder in float32, for inference."""
    return _load(Vocoder(), VOCODER)


def save(model: nn.Module, path: Path) -> None:
    """Writes a model's weights in float16, atomically."""
    state = {name: tensor.half().contiguous() for name, tensor in model.state_dict().items()}
    with replacing(path) as partial:
        save_file(state, partial)


def save_voice(prosody: ProsodyLM, flow: FlowDecoder) -> None:
    """Writes everything the build needs, so that it never asks the teacher."""
    save(prosody, PROSODY)
    save(flow, FLOW)
    save_makings()


def save_makings() -> None:
    """Writes what is made of the teacher without training: heads of the vocoder, scales of F0."""
    basis, statistics = load_latents()
    save(folded_vocoder(basis), VOCODER)
    description = {
        "frame_advance": frame_advance(),
        "voices": {
            name: {
                "log_f0_mean": statistics.log_f0_mean + math.log(making.f0_ratio),
                "log_f0_std": statistics.log_f0_std * making.f0_range,
            }
            for name, making in MAKINGS.items()
        },
    }
    with replacing(SPEECH) as partial:
        partial.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def folded_vocoder(basis: Basis) -> Vocoder:
    """The vocoder whose heads take latents: the teacher's head after the inverse of the basis, with
    the spectra of each voice stretched along frequency."""
    weight, bias = head()
    expand = basis.scale[:, None] * basis.components.T
    heads, biases = expand @ weight, basis.mean @ weight + bias
    vocoder = Vocoder()
    for voice, making in enumerate(MAKINGS.values()):
        vocoder.weight[voice] = torch.from_numpy(stretched(heads, making.formant_ratio))
        vocoder.bias[voice] = torch.from_numpy(stretched(biases, making.formant_ratio))
        vocoder.bias[voice] += torch.from_numpy(_gain(making))
    return vocoder


def stretched(spectra: NDArray[np.float32], ratio: float) -> NDArray[np.float32]:
    """Spectra [..., 5 * BINS] with what was at frequency f now at ratio * f; what the teacher has
    at the top is held above it. Linear, so that it may be done to a head as to what it gives."""
    parts = spectra.reshape(*spectra.shape[:-1], 5, BINS)
    place = np.minimum(np.arange(BINS) / ratio, BINS - 1)
    below = np.minimum(place.astype(np.int64), BINS - 2)
    share = (place - below).astype(np.float32)
    mixed = parts[..., below] * (1 - share) + parts[..., below + 1] * share
    return np.asarray(mixed.reshape(spectra.shape), np.float32)


def _gain(making: Making) -> NDArray[np.float32]:
    """[5 * BINS], added to log magnitudes: its own gain, and what makes up for harmonics that
    lie closer together and so are more."""
    gain = np.zeros((5, BINS), np.float32)
    gain[[_HARMONIC, _NOISE, _FREE]] = math.log(making.gain)
    gain[_HARMONIC] += 0.5 * math.log(making.f0_ratio)
    return gain.reshape(-1)


def _load(model: Model, path: Path) -> Model:
    state = {name: tensor.float() for name, tensor in load_file(path).items()}
    model.load_state_dict(state)
    return model.eval().requires_grad_(False)
