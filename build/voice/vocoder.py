"""The vocoder: acoustic frames to sound, as one graph of products and elementwise operations.

The spectrum of a frame is hibari's source-filter sum,

    S = exp(lh) e^{i pi tanh(theta)} STFT(pulses) + exp(ln) Z + exp(lr) e^{i phi},

with lh, theta, ln, lr, phi from a linear head on the latents, one for each voice, a band-limited
pulse train of the given F0 and white noise Z. hibari does this in numpy (`hibari/dsp.py`); here the
discrete Fourier transforms are matrix products, so that any ONNX or TensorRT runtime executes them,
and the phase of the pulse train and the noise are inputs, so that chunks of one piece join without
a seam.
"""

import math
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from python_backends.speech import (
    BINS,
    CONTEXT_FRAMES,
    HOP,
    LATENT,
    MIN_F0_HZ,
    N_FFT,
    SAMPLE_RATE_HZ,
    VOICES,
)

_HOPS_PER_WINDOW: Final = N_FFT // HOP
_HANN_SQUARED_SUM: Final = 1.5
"""Sum of the squared Hann windows that overlap on a sample, at four hops a window."""

_HIGHEST_HARMONIC_HZ: Final = 11_000.0
_LARGEST_LOG: Final = 7.0
_SMALLEST_SINE: Final = 2e-3
_FIRST_BIN_FRAME: Final = CONTEXT_FRAMES - 1
"""Spectra are made for the frames returned, one before and two after: their windows overlap."""


def interpolation() -> NDArray[np.float64]:
    """Weights [3, HOP] of frames k-1, k, k+1 for each sample of frame k.

    Linear between frame centres: sample j of frame k lies at k + (j + 0.5) / HOP - 0.5.
    """
    place = (np.arange(HOP) + 0.5) / HOP - 0.5
    before, after = np.maximum(-place, 0), np.maximum(place, 0)
    return np.stack([before, 1 - before - after, after])


def frame_advance() -> list[float]:
    """Samples that F0 of frames k-1, k, k+1 counts in frame k.

    The pulse train's phase advances over frame k by 2 pi / SAMPLE_RATE_HZ times the sum of these
    three times F0[k-1], F0[k], F0[k+1]; at the ends of a piece the missing neighbour is the frame
    itself.
    """
    return [float(weight) for weight in interpolation().sum(1)]


class Vocoder(nn.Module):
    """Latents, F0, voicing, phase and noise of F frames, and whose they are -> sound of
    F - 2 * CONTEXT_FRAMES."""

    weight: Tensor
    bias: Tensor
    _interpolation: Tensor
    _analysis: Tensor
    _synthesis: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(len(VOICES), LATENT, 5 * BINS))
        self.register_buffer("bias", torch.zeros(len(VOICES), 5 * BINS))
        for name, table in (
            ("_interpolation", interpolation()),
            ("_analysis", _analysis_basis()),
            ("_synthesis", _synthesis_basis()),
        ):
            buffer = torch.from_numpy(table.astype(np.float32))
            self.register_buffer(name, buffer, persistent=False)

    def forward(
        self,
        latent: Tensor,
        f0: Tensor,
        voiced: Tensor,
        phase: Tensor,
        noise: Tensor,
        voice: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The sound of frames CONTEXT_FRAMES .. F - CONTEXT_FRAMES - 1.

        Args:
            latent: float32 [B, F, LATENT], as the flow decoder emits them.
            f0: float32 [B, F], Hz, continuous through unvoiced frames.
            voiced: float32 [B, F], 1 voiced, 0 unvoiced.
            phase: float32 [B, F], radians: the pulse train's phase where each frame begins.
            noise: float32 [B, F, NOISE], standard normal: real parts, then imaginary parts.
            voice: int64 [B, 1], place in VOICES: rows of different voices may share a batch.

        Returns:
            speech: float32 [B, (F - 2 * CONTEXT_FRAMES) * HOP].
            sample_rate: int32 [B, 1].
        """
        frames = slice(_FIRST_BIN_FRAME, -_FIRST_BIN_FRAME + 1)
        pulses = self.pulses(f0, voiced, phase)
        head = self._head(latent[:, frames], voice)
        spectrum = self._spectrum(head, self._stft(pulses), noise[:, frames])
        sample_rate = torch.full_like(f0[:, :1], SAMPLE_RATE_HZ, dtype=torch.int32)
        return self._inverse_stft(spectrum), sample_rate

    def pulses(self, f0: Tensor, voiced: Tensor, phase: Tensor) -> Tensor:
        """The band-limited pulse train [B, F - 2, HOP] of frames 1 .. F - 2.

        Every harmonic below 11 kHz at unit amplitude: with H harmonics and phase t,
        cos t + ... + cos H t = sin((H + 1/2) t) / (2 sin(t / 2)) - 1/2.
        """
        neighbours = _neighbours(f0.clamp(min=MIN_F0_HZ))
        hz = neighbours @ self._interpolation
        turned = neighbours @ self._interpolation.cumsum(1) / SAMPLE_RATE_HZ
        cycles = turned + phase[:, 1:-1, None] / (2 * math.pi)
        angle = 2 * math.pi * (cycles - cycles.floor())
        harmonics = (_HIGHEST_HARMONIC_HZ / hz).floor() + 0.5
        sine = 2 * (angle / 2).sin()
        peak = sine.abs() <= _SMALLEST_SINE
        train = (harmonics * angle).sin() / torch.where(peak, torch.ones_like(sine), sine)
        train = torch.where(peak, harmonics, train) - 0.5
        gate = _neighbours(voiced) @ self._interpolation > 0.5
        return torch.where(gate, train, torch.zeros_like(train))

    def _stft(self, pulses: Tensor) -> Tensor:
        """Spectra [B, F - 7, 2 * BINS] of frames 4 .. F - 4 from the pulses of frames 1 .. F - 2.

        The window of frame k spans frames k-2 .. k+1.
        """
        first, count = _FIRST_BIN_FRAME - 3, pulses.shape[1] - 5
        hops = [pulses[:, first + i : first + i + count] for i in range(_HOPS_PER_WINDOW)]
        return torch.cat(hops, -1) @ self._analysis

    def _head(self, latent: Tensor, voice: Tensor) -> Tensor:
        """[B, K, LATENT] -> [B, K, 5 * BINS], each row by the head of its voice.

        As one product: a latent moves to its voice's block of a row that is zero elsewhere. To
        gather heads by row would copy 770 kB for each.
        """
        chosen = (voice == torch.arange(len(VOICES), device=voice.device)).to(latent.dtype)
        blocks = (chosen[:, None, :, None] * latent[:, :, None]).flatten(2)
        return blocks @ self.weight.flatten(0, 1) + (chosen @ self.bias)[:, None]

    def _spectrum(self, head: Tensor, source: Tensor, noise: Tensor) -> Tensor:
        """The source-filter sum; all spectra [B, K, 2 * BINS], real parts then imaginary parts."""
        lh, theta, ln, lr, phi = head.chunk(5, -1)
        turn = math.pi * theta.tanh()
        real, imaginary = source.chunk(2, -1)
        cos, sin = turn.cos(), turn.sin()
        harmonic, free, hiss = _magnitude(lh), _magnitude(lr), _magnitude(ln)
        noise_real, noise_imaginary = noise.chunk(2, -1)
        return torch.cat(
            [
                harmonic * (real * cos - imaginary * sin) + hiss * noise_real + free * phi.cos(),
                harmonic * (real * sin + imaginary * cos)
                + hiss * noise_imaginary
                + free * phi.sin(),
            ],
            -1,
        )

    def _inverse_stft(self, spectrum: Tensor) -> Tensor:
        """Overlap-add of windowed frames: sample block b is shared by frames b-1 .. b+2."""
        windows = spectrum @ self._synthesis
        count = spectrum.shape[1] - _HOPS_PER_WINDOW + 1
        speech = torch.zeros_like(windows[:, :count, :HOP])
        for i in range(_HOPS_PER_WINDOW):
            late = _HOPS_PER_WINDOW - 1 - i
            speech = speech + windows[:, late : late + count, i * HOP : (i + 1) * HOP]
        return speech.flatten(1)


def _neighbours(x: Tensor) -> Tensor:
    """[B, F] -> [B, F - 2, 3]: each inner frame with the one before and the one after."""
    return torch.stack([x[:, :-2], x[:, 1:-1], x[:, 2:]], -1)


def _magnitude(log: Tensor) -> Tensor:
    return log.clamp(max=_LARGEST_LOG).exp()


def _hann() -> NDArray[np.float64]:
    return np.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(N_FFT) / N_FFT))


def _angles() -> NDArray[np.float64]:
    """2 pi n k / N_FFT, [N_FFT, BINS]."""
    product = np.outer(np.arange(N_FFT), np.arange(BINS)) % N_FFT
    return 2 * np.pi * product / N_FFT


def _analysis_basis() -> NDArray[np.float64]:
    """[N_FFT, 2 * BINS]: windowed DFT, scaled so that a unit cosine peaks at 1 at its bin."""
    window = _hann() / (N_FFT / 4)
    basis = np.concatenate([np.cos(_angles()), -np.sin(_angles())], 1)
    return np.asarray(basis * window[:, None])


def _synthesis_basis() -> NDArray[np.float64]:
    """[2 * BINS, N_FFT]: inverse DFT of a half spectrum, windowed, divided by the overlap's sum."""
    both_sides = np.full((BINS, 1), 2.0)
    both_sides[[0, -1]] = 1.0
    window = _hann() / (N_FFT * _HANN_SQUARED_SUM)
    angles = _angles().T
    real, imaginary = both_sides * np.cos(angles), -both_sides * np.sin(angles)
    return np.asarray(np.concatenate([real, imaginary]) * window)
