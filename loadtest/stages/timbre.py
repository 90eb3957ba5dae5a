"""How high and how bright a voice is: of speech at 24 kHz, float32 [n], by its louder half."""

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 24_000
WINDOW, HOP, N_FFT = 1_200, 600, 4_096
"""Samples."""

LAGS = slice(80, 401)
"""Samples between periods of 300 and of 60 Hz."""


def pitch_hz(sound: NDArray[np.float32]) -> float:
    """Median F0, by autocorrelation, 60 to 300 Hz."""
    likeness = np.fft.irfft(_powers(sound), axis=1)[:, LAGS]
    return float(RATE_HZ / (LAGS.start + np.median(likeness.argmax(1))))


def centroid_hz(sound: NDArray[np.float32]) -> float:
    """Median of the frequency about which a frame's power lies (spectral centroid)."""
    powers = _powers(sound)
    hz = np.fft.rfftfreq(N_FFT, 1 / RATE_HZ)
    return float(np.median(powers @ hz / powers.sum(1)))


def _powers(sound: NDArray[np.float32]) -> NDArray[np.float64]:
    """Power spectra [frames, N_FFT / 2 + 1] of the louder half of all frames."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[::HOP]
    loudness = (frames**2).mean(1)
    loud = frames[loudness > np.median(loudness)]
    return np.asarray(np.abs(np.fft.rfft(loud * np.hanning(WINDOW), N_FFT, axis=1)) ** 2)
