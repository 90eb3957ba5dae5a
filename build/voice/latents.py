"""The space that frames are compressed to, and the scale of F0.

They are in git (`latents.safetensors`), so that weights trained on one corpus can be trained on
with another.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from build.fetch import replacing
from python_backends.speech import LATENT

LATENTS: Final = Path(__file__).parents[2] / "weights" / "voice" / "latents.safetensors"
VOICED_HZ: Final = 60.0
"""The teacher's F0 is above it where it is voiced."""


@dataclass(frozen=True)
class Basis:
    """Principal components of the teacher's hidden layer."""

    mean: NDArray[np.float32]
    """[HIDDEN]."""
    components: NDArray[np.float32]
    """[HIDDEN, LATENT], orthonormal columns."""
    scale: NDArray[np.float32]
    """[LATENT], standard deviation along each component: latents are divided by it."""
    explained: float
    """Share of the variance that the components keep."""

    @classmethod
    def fit(cls, hidden: NDArray[np.float32]) -> "Basis":
        """The LATENT largest principal components of [frames, HIDDEN]."""
        mean = hidden.mean(0)
        variance, vectors = np.linalg.eigh(np.cov((hidden - mean).T))
        kept = slice(None, -LATENT - 1, -1)
        return cls(
            mean.astype(np.float32),
            np.ascontiguousarray(vectors[:, kept], np.float32),
            np.sqrt(variance[kept]).astype(np.float32),
            float(variance[kept].sum() / variance.sum()),
        )

    def project(self, hidden: NDArray[np.float32]) -> NDArray[np.float16]:
        """Normalised latents [T, LATENT] of [T, HIDDEN]."""
        latent = (hidden - self.mean) @ self.components / self.scale
        return latent.astype(np.float16)


@dataclass(frozen=True)
class Statistics:
    """How the teacher's F0 is normalised for the flow decoder and binned for the prosody LM; logs
    of Hz. All voices are modelled in its scale, and brought to their own when they speak."""

    log_f0_mean: float
    log_f0_std: float
    pitch_low: float
    pitch_high: float

    @classmethod
    def of(cls, f0: NDArray[np.float32]) -> "Statistics":
        """Statistics of the voiced frames; pitch bins span their 1st to 99th percentile."""
        logs = np.log(f0[f0 > VOICED_HZ])
        low, high = np.percentile(logs, [1, 99])
        return cls(float(logs.mean()), float(logs.std()), float(low), float(high))


def load_latents() -> tuple[Basis, Statistics]:
    """The space of the latents, and the scale of F0."""
    stored = load_file(LATENTS)
    basis = Basis(stored["mean"], stored["components"], stored["scale"], float(stored["explained"]))
    return basis, Statistics(*map(float, stored["statistics"]))


def save_latents(basis: Basis, statistics: Statistics) -> None:
    """Writes LATENTS, atomically: arrays in float32, statistics in float64."""
    arrays = {
        "mean": basis.mean,
        "components": basis.components,
        "scale": basis.scale,
        "explained": np.array(basis.explained, np.float32),
        "statistics": np.array(list(vars(statistics).values())),
    }
    with replacing(LATENTS) as partial:
        save_file(arrays, partial)
