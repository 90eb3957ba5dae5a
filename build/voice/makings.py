"""What makes voices of the teacher's without training: their vocoder heads and scales of F0."""

import json
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from build.fetch import replacing
from build.voice.latents import Basis, load_latents
from build.voice.teacher import head
from build.voice.vocoder import Vocoder, frame_advance
from build.voice.weights import SPEECH, VOCODER, save
from python_backends.speech import BINS, VOICES

_HARMONIC, _NOISE, _FREE = 0, 2, 3
"""Log magnitudes among the five parts of a head."""


@dataclass(frozen=True)
class Making:
    """What makes a voice of the teacher's."""

    f0_ratio: float
    """Its mean F0 by the teacher's."""

    f0_range: float
    """Its spread of log F0 by the teacher's."""

    formant_ratio: float
    """Its resonances by the teacher's: below 1 for a longer vocal tract."""

    pace: float
    """How fast it speaks, by the teacher."""

    gain: float
    """Of all magnitudes, so that voices are equally loud."""


MAKINGS: Final[dict[str, Making]] = {
    "alto": Making(1.0, 1.0, 1.0, 1.0, 1.0),
    "baritone": Making(0.6, 0.85, 0.87, 0.93, 0.66),
}
"""0.6 makes 115 Hz, an average man's; 0.87 is a woman's vocal tract by a man's, 14.8 cm by 17."""

assert tuple(MAKINGS) == VOICES


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
