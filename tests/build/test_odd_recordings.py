"""Recordings that other programs choke on: read as what they hold, or refused with a reason."""

from pathlib import Path

import numpy as np
import pytest
import scipy.io
from scipy.io import wavfile

from client import audio
from python_backends.errors import InvalidInput
from tests import clips

FOLDER = Path(scipy.io.__file__).parent / "tests" / "data"
"""What SciPy's wheel tests its own reader with: BSD-3-Clause."""

READABLE = {
    "test-44100Hz-2ch-32bit-float-be": 441,
    "test-44100Hz-2ch-32bit-float-le": 441,
    "test-44100Hz-be-1ch-4bytes": 4410,
    "test-44100Hz-le-1ch-4bytes": 4410,
    "test-44100Hz-le-1ch-4bytes-rf64": 4410,
    "test-44100Hz-le-1ch-4bytes-early-eof": 236,
    "test-48000Hz-2ch-64bit-float-le-wavex": 480,
    "test-8000Hz-be-3ch-5S-24bit": 5,
    "test-8000Hz-le-3ch-5S-24bit": 5,
    "test-8000Hz-le-3ch-5S-24bit-inconsistent": 5,
    "test-8000Hz-le-3ch-5S-24bit-rf64": 5,
    "test-8000Hz-le-1ch-1byte-ulaw": 9,
    "test-8000Hz-le-2ch-1byteu": 800,
    "test-8000Hz-le-4ch-9S-12bit": 9,
    "test-8000Hz-le-5ch-9S-5bit": 9,
}
"""Frames that each of them holds."""

REFUSED = {
    "test-1234Hz-le-1ch-10S-20bit-extra": "1234 Hz; 4000 to 384000 Hz",
    "test-44100Hz-le-1ch-4bytes-early-eof-no-data": "not readable as audio",
    "test-44100Hz-le-1ch-4bytes-incomplete-chunk": "not readable as audio",
    **{f"test-8000Hz-le-3ch-5S-{bits}bit": "not readable as audio" for bits in (36, 45, 53, 64)},
}
BROKEN = {
    "null": "holds no samples",
    "bad": "not readable as audio",
    "evil": "not readable as audio",
    "awful": "1092676 Hz; 4000 to 384000 Hz",
}


def rate_of(name: str) -> int:
    return int(name.split("-")[1].removesuffix("Hz"))


def test_every_file_of_scipy_has_a_verdict() -> None:
    assert {path.stem for path in FOLDER.glob("*.wav")} == READABLE.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", READABLE)
def test_every_width_order_and_container_is_read_at_its_length(name: str) -> None:
    heard = audio.read(FOLDER / f"{name}.wav")
    assert abs(len(heard) - READABLE[name] * 16_000 / rate_of(name)) <= 1
    assert 0.3 < np.abs(heard).max() <= 1


@pytest.mark.parametrize("name", [n for n in READABLE if "24bit" in n and "inc" not in n])
def test_24_bits_in_any_container_are_the_sound_that_scipy_reads(name: str) -> None:
    """Public case A12, half of it; SciPy puts 24 bits into the upper ones of 32."""
    path = FOLDER / f"{name}.wav"
    rate_hz, samples = wavfile.read(path)
    mono = (samples / 2**31).mean(axis=1).astype(np.float32)
    np.testing.assert_allclose(audio.read(path), audio.resample(mono, rate_hz, 16_000), atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_rightly_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(InvalidInput, match=REFUSED[name]):
        audio.read(FOLDER / f"{name}.wav")


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_wav_is_refused_in_words(name: str) -> None:
    """Python's own reader raises two of them without a word, and opens the last one."""
    with pytest.raises(InvalidInput, match=BROKEN[name]) as refused:
        audio.read(clips.broken()[name])
    assert "accepted" in refused.value.message
