"""Log-mel against a plain DFT of the padded sound, as Whisper defines it."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.encoder_window.mel import HOP, N_FFT, log_mel, mel_filters
from python_backends.encoder_window.windows import to_windows


def reference(sound: NDArray[np.float32], frames: int) -> NDArray[np.float64]:
    """Every frame of the padded sound by a DFT matrix, in float64."""
    padded = np.zeros(frames * HOP)
    padded[: len(sound)] = sound
    edged = np.concatenate([padded[200:0:-1], padded, padded[-2:-202:-1]])
    n = np.arange(N_FFT)
    hann = np.sin(np.pi * n / N_FFT) ** 2
    dft = np.exp(-2j * np.pi * np.outer(n, np.arange(201)) / N_FFT)
    powers = np.abs(
        np.array([edged[k * HOP : k * HOP + N_FFT] * hann for k in range(frames)]) @ dft
    )
    logs = np.log10(np.maximum(mel_filters() @ (powers**2).T, 1e-10))
    return (np.maximum(logs, logs.max() - 8) + 4) / 4


def noise(samples: int, seed: int = 0) -> NDArray[np.float32]:
    """Noise that is loud up to its very edges."""
    return np.random.default_rng(seed).uniform(-0.9, 0.9, samples).astype(np.float32)


@pytest.mark.parametrize(
    "samples", [1, 2, 159, 160, 199, 200, 201, 399, 400, 401, 16_000, 239_900, 240_000]
)
def test_log_mel_equals_the_reference_also_at_the_edges(samples: int) -> None:
    sound = noise(samples)
    found = log_mel(sound, 1500)
    assert found.shape == (80, 1500)
    assert found.dtype == np.float32
    assert np.abs(found - reference(sound, 1500)).max() < 1e-5


@pytest.mark.parametrize("samples", [479_840, 479_999, 480_000])
def test_sound_that_fills_the_long_window_to_its_last_frames_equals_the_reference(
    samples: int,
) -> None:
    sound = noise(samples, seed=samples)
    assert np.abs(log_mel(sound, 3000) - reference(sound, 3000)).max() < 1e-5


def test_random_lengths_equal_the_reference() -> None:
    for samples in np.random.default_rng(7).integers(1, 240_000, 6).tolist():
        sound = noise(samples, seed=samples)
        assert np.abs(log_mel(sound, 1500) - reference(sound, 1500)).max() < 1e-5, samples


ODD_SOUNDS: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "an offset": lambda sound: sound * np.float32(0.1) + np.float32(0.8),
    "nothing but an offset": lambda sound: np.full_like(sound, 0.5),
    "clipped": lambda sound: np.clip(8 * sound, -1, 1),
    "a square wave": lambda sound: np.sign(sound),
    "a click at either end": lambda sound: (
        np.eye(1, len(sound), 0, np.float32)[0]
        + np.eye(1, len(sound), len(sound) - 1, np.float32)[0]
    ),
    "almost nothing": lambda sound: sound * np.float32(1e-7),
    "far above full scale": lambda sound: sound * np.float32(2),
}


@pytest.mark.parametrize("samples", [1, 161, 8000, 100_001])
@pytest.mark.parametrize("kind", ODD_SOUNDS)
def test_odd_sounds_equal_the_reference(kind: str, samples: int) -> None:
    sound = ODD_SOUNDS[kind](noise(samples)).astype(np.float32)
    found = log_mel(sound, 1500)
    assert np.isfinite(found).all()
    assert np.abs(found - reference(sound, 1500)).max() < 1e-3


def test_sound_of_thirty_seconds_and_one_sample_is_two_windows_each_equal_to_the_reference() -> (
    None
):
    sound = noise(480_001, seed=2)
    windows = to_windows(sound, 0)
    assert [window.frames for window in windows] == [3000, 1500]
    assert (np.concatenate([window.sound for window in windows]) == sound).all()
    for window in windows:
        found = log_mel(window.sound, window.frames)
        assert np.abs(found - reference(window.sound, window.frames)).max() < 1e-3


@pytest.mark.parametrize("samples", [1, 16_000, 232_000, 232_001, 480_000, 480_001])
def test_states_are_half_of_the_frames_and_frames_cover_the_sound(samples: int) -> None:
    """Public case B6."""
    for window in to_windows(noise(samples), 0):
        assert 2 * window.states == (0 if window.silent else window.frames)
        assert len(window.sound) <= window.frames * HOP


def test_a_full_window_of_thirty_seconds_equals_the_reference() -> None:
    sound = noise(480_000, seed=1)
    assert np.abs(log_mel(sound, 3000) - reference(sound, 3000)).max() < 1e-5


def test_digital_silence_gives_the_floor_everywhere() -> None:
    assert (log_mel(np.zeros(16_000, np.float32), 1500) == np.float32(-1.5)).all()


def test_sound_longer_than_the_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        log_mel(noise(1601), 10)


def test_each_filter_has_about_unit_area_and_the_first_and_last_reach_the_ends() -> None:
    filters = mel_filters()
    assert filters.shape == (80, 201)
    wide = filters[40:]
    assert np.abs(wide.sum(axis=1) * 40 - 1).max() < 0.1
    assert filters[0, 1] > 0
    assert filters[-1, 199] > 0


def test_the_filters_are_those_that_librosa_publishes() -> None:
    """Spot values of librosa.filters.mel(sr=16000, n_fft=400, n_mels=80)."""
    filters = mel_filters()
    assert filters[0, 1] == pytest.approx(0.02486259, abs=1e-7)
    assert filters[1, 1] == pytest.approx(0.00199082, abs=1e-7)
    assert filters[1, 2] == pytest.approx(0.02287177, abs=1e-7)
