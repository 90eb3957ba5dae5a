"""What the voices are made and measured with: manners, stretched spectra, noise, pictures."""

from collections import Counter
from io import BytesIO

import numpy as np
import pytest
from matplotlib import image

from build.voice.listening import spectrogram
from build.voice.makings import MAKINGS, stretched
from build.voice.manners import Manner, manners
from build.voice.noisy_turns import KINDS, LEVELS_DB, TURNS, mixed, noisy_orders
from python_backends.speech import BINS, VOICES


@pytest.mark.parametrize("level_db", [20.0, 5.0])
def test_noise_is_mixed_at_the_level_that_is_asked_for(level_db: float) -> None:
    rng = np.random.default_rng(0)
    speech, noise = rng.standard_normal((2, 4000)).astype(np.float32) * [[0.1], [7]]
    both = mixed(speech, noise, level_db)
    left = both - speech
    assert 10 * np.log10(np.mean(speech**2) / np.mean(left**2)) == pytest.approx(level_db, abs=1e-3)
    assert np.abs(mixed(100 * speech, noise, level_db)).max() <= 1


def test_orders_in_noise_are_twenty_of_every_kind_and_level_and_always_the_same() -> None:
    first, again = list(noisy_orders()), list(noisy_orders())
    assert len({order.text for order in first}) == TURNS
    counts = Counter((order.kind, order.level_db, order.voice) for order in first)
    assert counts == {
        (kind, level, voice): 1 for kind in KINDS for level in LEVELS_DB for voice in VOICES
    }
    assert all(np.array_equal(a.sound, b.sound) for a, b in zip(first, again, strict=True))
    assert all(one.sound.shape == one.clean.shape for one in first)


def test_every_text_is_read_once_by_each_voice_in_a_manner_of_its_own() -> None:
    drawn = manners(300, seed=1)
    assert drawn == manners(300, seed=1) != manners(300, seed=2)
    assert [one.voice for one in drawn] == list(range(len(VOICES))) * 300
    assert len({one.pace for one in drawn}) > 550
    for voice, making in enumerate(MAKINGS.values()):
        paces = [one.pace for one in drawn if one.voice == voice]
        assert np.median(paces) == pytest.approx(making.pace, rel=0.02)
        assert 0.8 * making.pace < min(paces) < max(paces) < 1.2 * making.pace


def test_a_manner_moves_the_melody_about_its_mean() -> None:
    melody, voiced = np.array([0.0, 1.0, 2.0, 9.0]), np.array([True, True, True, False])
    changed = Manner(0, 1.0, 0.5, 0.25).melody(melody, voiced)
    np.testing.assert_allclose(changed, [0.75, 1.25, 1.75, 5.25])


def test_a_longer_vocal_tract_moves_a_peak_down_in_every_part() -> None:
    spectra = np.zeros((2, 5 * BINS), np.float32)
    for part in range(5):
        spectra[:, part * BINS + 200] = part + 1
    moved = stretched(spectra, 0.8).reshape(2, 5, BINS)
    assert (moved.argmax(-1) == 160).all()
    np.testing.assert_allclose(moved.max(-1), [[1, 2, 3, 4, 5]] * 2)
    np.testing.assert_array_equal(stretched(spectra, 1.0), spectra)


def test_a_tone_is_a_dark_line_in_its_spectrogram() -> None:
    """Of 257 rows the lowest is 0 Hz, the highest 12 kHz."""
    tone = np.sin(2 * np.pi * 3_000 * np.arange(24_000) / 24_000).astype(np.float32)
    picture = image.imread(BytesIO(spectrogram(tone)), format="png")[..., 0]
    assert picture.shape[0] == 257
    inner = picture[:, 4:-4]
    assert (inner.argmin(0) == 256 - 64).all()
    assert (inner[256 - 64] == 0).all()
    assert np.median(inner) == 1
