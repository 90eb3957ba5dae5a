"""Whisper's log-mel spectrogram.

The definition is that of openai/whisper `audio.py::log_mel_spectrogram`: sound padded with zeros to
the window, STFT with a periodic Hann window of 400 samples every 160, centred with reflected edges,
the last frame dropped; power; 80 or 128 mel filters; log10 floored at 1e-10 and at 8 below the
maximum; (x + 4) / 4. Filters as in librosa `filters.mel` (Slaney's scale, each of unit area in Hz).
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from python_backends.encoder_window.audio import SAMPLE_RATE_HZ

N_FFT = 400
HOP = 160
FRAME_HZ = SAMPLE_RATE_HZ // HOP
FLOOR = 1e-10
DYNAMIC_RANGE = 8.0
"""In decades of power below the loudest point."""


def log_mel(sound: NDArray[np.float32], frames: int, mels: int = 80) -> NDArray[np.float32]:
    """Log-mel of `sound` [n] at 16 kHz, padded with zeros to `frames`: float32 [mels, frames].

    Only frames that touch the sound are computed; the others hold the floor. ValueError when the
    sound is longer than the frames.
    """
    if len(sound) > frames * HOP:
        raise ValueError(f"{len(sound)} samples do not fit into {frames} mel frames")
    powers = _powers(sound, frames)
    logs = np.full((mels, frames), np.log10(FLOOR), np.float32)
    logs[:, : len(powers)] = np.log10(np.maximum(mel_filters(mels) @ powers.T, FLOOR))
    floored = np.maximum(logs, logs.max() - np.float32(DYNAMIC_RANGE))
    return np.asarray((floored + np.float32(4)) / np.float32(4), np.float32)


@cache
def mel_filters(mels: int = 80) -> NDArray[np.float64]:
    """Triangular filters [mels, 201], evenly spaced on Slaney's mel scale from 0 to 8000 Hz."""
    bins_hz = np.arange(N_FFT // 2 + 1) * SAMPLE_RATE_HZ / N_FFT
    top = _hz_to_mel(SAMPLE_RATE_HZ / 2)
    edges = _mel_to_hz(np.linspace(0, top, mels + 2))
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising = (bins_hz - low) / (centre - low)
    falling = (high - bins_hz) / (high - centre)
    return np.asarray(np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low))


def _powers(sound: NDArray[np.float32], frames: int) -> NDArray[np.float64]:
    """Power spectra [active, 201] of the frames that touch the sound."""
    half = N_FFT // 2
    active = min(frames, -(-(len(sound) + half) // HOP))
    padded = np.zeros(min(frames * HOP, active * HOP + half))
    padded[: len(sound)] = sound
    edged = np.pad(padded, half, mode="reflect")
    views = np.lib.stride_tricks.sliding_window_view(edged, N_FFT)[: active * HOP : HOP]
    spectrum = np.fft.rfft(views * _hann())
    return np.asarray(spectrum.real**2 + spectrum.imag**2)


@cache
def _hann() -> NDArray[np.float64]:
    """The periodic Hann window, as torch.hann_window."""
    return np.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(N_FFT) / N_FFT))


# Slaney's Auditory Toolbox: linear to 1000 Hz (15 mel), then 27 mel per factor of 6.4.
_LINEAR_HZ = 200 / 3
_BREAK_HZ = 1000.0
_LOG_STEP = np.log(6.4) / 27


def _hz_to_mel(hz: float) -> float:
    if hz < _BREAK_HZ:
        return hz / _LINEAR_HZ
    return float(_BREAK_HZ / _LINEAR_HZ + np.log(hz / _BREAK_HZ) / _LOG_STEP)


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    above = mel - _BREAK_HZ / _LINEAR_HZ
    return np.where(above < 0, mel * _LINEAR_HZ, _BREAK_HZ * np.exp(_LOG_STEP * above))
