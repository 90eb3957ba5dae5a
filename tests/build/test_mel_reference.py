"""Log-mel against Whisper's published definition in torch, with filters written independently."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import WhisperFeatureExtractor

from python_backends.encoder_window.mel import HOP, N_FFT, log_mel

Sound = NDArray[np.float32]
TOLERANCE = 1e-3
LONG = [16_000, round(29.99 * 16_000), 30 * 16_000]
SHORT = [0, 1, 2, 159, 160, 199, 200, 201, 399, 400, 401]


def mel_filters() -> NDArray[np.float64]:
    """Slaney's area-normalised mel triangles [80, 201]."""
    log_step, knee_hz, knee_mel = np.log(6.4) / 27, 1000.0, 15.0
    top = knee_mel + np.log(8000 / knee_hz) / log_step
    mels = np.linspace(0, top, 82)
    linear, logarithmic = mels * 200 / 3, knee_hz * np.exp(log_step * (mels - knee_mel))
    edges = np.where(mels < knee_mel, linear, logarithmic)
    bins = np.linspace(0, 8000, N_FFT // 2 + 1)
    rise = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    area = 2 / (edges[2:] - edges[:-2])
    return np.asarray(np.maximum(0, np.minimum(rise, fall)) * area[:, None])


def reference(sound: Sound, frames: int) -> NDArray[np.float32]:
    """[80, frames]: pad, STFT, drop the last frame, filter, log, floor; in that order."""
    padded = torch.zeros(frames * HOP)
    padded[: len(sound)] = torch.from_numpy(sound)
    window = torch.hann_window(N_FFT)
    spectrum = torch.stft(padded, N_FFT, HOP, window=window, return_complex=True)
    powers = spectrum[:, :-1].abs().square()
    filters = torch.from_numpy(mel_filters()).float()
    logs = (filters @ powers).clamp(min=1e-10).log10()
    return np.asarray((logs.maximum(logs.max() - 8.0) + 4.0) / 4.0)


def noise(samples: int) -> Sound:
    return np.random.default_rng(samples).uniform(-0.5, 0.5, samples).astype(np.float32)


def loud_ends(samples: int) -> Sound:
    """Noise, and full scale in the very first and the very last sample."""
    sound = 0.1 * noise(samples)
    sound[[0, -1]] = 1, -1
    return sound


def steps(samples: int) -> Sound:
    """Silence between an outermost millisecond of full scale on either side."""
    sound = np.zeros(samples, np.float32)
    sound[:16] = sound[-16:] = 1
    return sound


@pytest.mark.parametrize("samples", LONG)
@pytest.mark.parametrize("make", [noise, loud_ends, steps])
def test_long_sound_equals_the_definition_to_its_edges(
    make: Callable[[int], Sound], samples: int
) -> None:
    """Public case A10."""
    sound = make(samples)
    for frames in (1500, 3000):
        if samples <= frames * HOP:
            found, expected = log_mel(sound, frames), reference(sound, frames)
            assert np.abs(found - expected).max() < TOLERANCE


@pytest.mark.parametrize("samples", SHORT)
@pytest.mark.parametrize("frames", [1500, 3000])
def test_sound_around_an_analysis_window_equals_the_definition(samples: int, frames: int) -> None:
    """Public case A10: lengths about the hop of 160, the reflected 200 and the window of 400."""
    for sound in (noise(samples), np.ones(samples, np.float32)):
        assert np.abs(log_mel(sound, frames) - reference(sound, frames)).max() < TOLERANCE


@pytest.mark.parametrize("samples", [480_000 - 401, 480_000 - 200, 480_000 - 199, 480_000 - 1])
def test_sound_that_ends_within_the_last_reflected_edge_equals_the_definition(samples: int) -> None:
    """Public case A10: the last frames see the sound twice, as it is and reflected."""
    sound = loud_ends(samples)
    assert np.abs(log_mel(sound, 3000) - reference(sound, 3000)).max() < TOLERANCE


@pytest.mark.parametrize("mels", [80, 128])
def test_the_features_are_those_of_transformers(mels: int) -> None:
    """80 and 128 filters, of sound that is padded and of sound that fills the window."""
    theirs = WhisperFeatureExtractor(feature_size=mels)
    for sound in (noise(50_001), loud_ends(480_000), steps(16_000)):
        expected = theirs(sound, sampling_rate=16_000, return_tensors="np").input_features[0]
        assert expected.shape == (mels, 3000)
        assert np.abs(log_mel(sound, 3000, mels) - expected).max() < TOLERANCE
