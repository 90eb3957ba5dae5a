"""From the flow decoder's frames to what drives the vocoder's source: F0, voicing, phase."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from python_backends.speech import LATENT, MIN_F0_HZ, SAMPLE_RATE_HZ, VOICES

MAX_F0_HZ = 600.0
LOG_F0, VOICING = LATENT, LATENT + 1
"""Channels of a frame behind the latents."""


@dataclass(frozen=True)
class Voice:
    """Constants of a voice."""

    number: int
    """Its place in VOICES."""

    log_f0_mean: float
    log_f0_std: float
    frame_advance: tuple[float, float, float]
    """Samples' worth of F0 of the frame before, the frame itself and the one after, that make up
    the phase advance of one frame; as the vocoder graph accumulates it inside a frame."""

    def f0_hz(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        """F0 [T] of decoder frames [T, 66], continuous through unvoiced frames."""
        log_f0 = frames[:, LOG_F0] * np.float32(self.log_f0_std) + np.float32(self.log_f0_mean)
        within = np.clip(log_f0, np.log(MIN_F0_HZ), np.log(MAX_F0_HZ))
        return np.asarray(np.exp(within), np.float32)

    def phase(self, f0_hz: NDArray[np.float32]) -> NDArray[np.float32]:
        """Phase of the pulse train at the start of each frame, radians in [0, 2 pi): [F] -> [F].

        advance[k] = 2 pi / rate * (a f0[k-1] + b f0[k] + c f0[k+1]), edge frames replicated.
        """
        before, own, after = self.frame_advance
        edged = np.pad(f0_hz.astype(np.float64), 1, mode="edge")
        cycles = (before * edged[:-2] + own * edged[1:-1] + after * edged[2:]) / SAMPLE_RATE_HZ
        start = np.concatenate([[0.0], np.cumsum(cycles)[:-1]])
        return np.asarray(2 * np.pi * (start % 1.0), np.float32)


Voices = Mapping[str, Voice]
"""By name."""


def load_voices(path: Path) -> Voices:
    """Read `speech.json`. FileNotFoundError before a build; ValueError for lack of a value."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; run `make build`")
    found = json.loads(path.read_text())
    try:
        before, own, after = map(float, found["frame_advance"])
        scales = [found["voices"][name] for name in VOICES]
        means_and_spreads = [
            (float(scale["log_f0_mean"]), float(scale["log_f0_std"])) for scale in scales
        ]
    except (KeyError, TypeError, ValueError) as fault:
        raise ValueError(f"{path} is not a description of voices: {fault!r}") from fault
    return {
        name: Voice(number, mean, spread, (before, own, after))
        for number, (name, (mean, spread)) in enumerate(zip(VOICES, means_and_spreads, strict=True))
    }


def voiced(frames: NDArray[np.float32]) -> NDArray[np.float32]:
    """1 in voiced frames, else 0: [T, 66] -> [T]."""
    return (frames[:, VOICING] > 0).astype(np.float32)
