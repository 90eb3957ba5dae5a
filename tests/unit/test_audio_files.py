"""Recordings of every form come in as float32 mono 16 kHz, or are refused with a reason."""

import os
import struct
import tracemalloc
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile

from client import audio
from python_backends.errors import InvalidInput

STREAMED_SIZES = [0, 0x7FFFFFFF, 0xFFFFFFFF]


def tone(rate_hz: int, seconds: float = 0.5, hz: float = 440.0) -> audio.Floats:
    at = np.arange(round(rate_hz * seconds)) / rate_hz
    return (0.5 * np.sin(2 * np.pi * hz * at)).astype(np.float32)


def pitch_hz(sound: audio.Floats, rate_hz: int = audio.HEARD_RATE_HZ) -> float:
    spectrum = np.abs(np.fft.rfft(sound * np.hanning(len(sound))))
    return float(spectrum.argmax()) * rate_hz / len(sound)


def with_data_size(path: Path, size: int) -> None:
    content = bytearray(path.read_bytes())
    at = content.index(b"data") + 4
    content[at : at + 4] = struct.pack("<I", size)
    path.write_bytes(content)


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 22_050, 44_100, 48_000, 192_000])
def test_any_rate_keeps_length_and_pitch(tmp_path: Path, rate_hz: int) -> None:
    soundfile.write(tmp_path / "a.wav", tone(rate_hz), rate_hz)
    heard = audio.read(tmp_path / "a.wav")
    assert heard.dtype == np.float32
    assert abs(len(heard) - 8_000) <= 1
    assert pitch_hz(heard) == pytest.approx(440, abs=3)


@pytest.mark.parametrize("to_hz", [8_000, 16_000, 24_000, 44_100, 48_000])
def test_speech_at_any_rate_keeps_length_and_pitch(tmp_path: Path, to_hz: int) -> None:
    """Public case I7: what comes at 24 kHz, asked for at another rate, and from a file of it."""
    sound = audio.resample(tone(24_000), 24_000, to_hz)
    assert len(sound) == pytest.approx(to_hz / 2, abs=1)
    assert pitch_hz(sound, to_hz) == pytest.approx(440, abs=3)
    audio.write(tmp_path / "a.wav", sound, to_hz)
    assert pitch_hz(audio.read(tmp_path / "a.wav")) == pytest.approx(440, abs=3)


def test_stereo_in_24_bits_at_44_khz_is_averaged_to_mono(tmp_path: Path) -> None:
    left = tone(44_100)
    soundfile.write(tmp_path / "a.wav", np.stack([left, 0 * left], 1), 44_100, subtype="PCM_24")
    heard = audio.read(tmp_path / "a.wav")
    assert heard.ndim == 1
    assert np.abs(heard).max() == pytest.approx(0.25, abs=0.01)


def test_unsigned_bytes_are_centred(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(16_000), 16_000, subtype="PCM_U8")
    assert abs(float(audio.read(tmp_path / "a.wav").mean())) < 0.01


@pytest.mark.parametrize(
    ("name", "subtype"), [("a.flac", "PCM_16"), ("a.ogg", "VORBIS"), ("a.wav", "DOUBLE")]
)
def test_other_formats_sound_the_same(tmp_path: Path, name: str, subtype: str) -> None:
    soundfile.write(tmp_path / name, tone(16_000), 16_000, subtype=subtype)
    assert np.abs(audio.read(tmp_path / name) - tone(16_000)).max() < 0.05


def test_a_format_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(16_000), 16_000)
    (tmp_path / "a.wav").rename(tmp_path / "a.raw")
    assert len(audio.read(tmp_path / "a.raw")) == 8_000


@pytest.mark.parametrize("size", STREAMED_SIZES)
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT"])
def test_a_streamed_wav_has_as_many_samples_as_it_has_bytes(
    tmp_path: Path, size: int, subtype: str
) -> None:
    """Public case A8, on the way in."""
    soundfile.write(tmp_path / "a.wav", tone(16_000), 16_000, subtype=subtype)
    whole = audio.read(tmp_path / "a.wav")
    with_data_size(tmp_path / "a.wav", size)
    np.testing.assert_array_equal(audio.read(tmp_path / "a.wav"), whole)


def test_a_wav_without_samples_but_with_a_title_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.zeros(0), 16_000)
    path.write_bytes(path.read_bytes() + b"LIST" + struct.pack("<I", 4) + b"INFO")
    with pytest.raises(InvalidInput, match="holds no samples"):
        audio.read(path)


def test_sixteen_bit_values_in_floats_are_scaled(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(16_000) * 32_768, 16_000, subtype="FLOAT")
    np.testing.assert_allclose(audio.read(tmp_path / "a.wav"), tone(16_000), atol=1e-5)


def test_a_loud_mix_is_scaled_to_full_scale(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(16_000) * 3, 16_000, subtype="FLOAT")
    heard = audio.read(tmp_path / "a.wav")
    np.testing.assert_allclose(heard, tone(16_000) * 2, atol=1e-3)


@pytest.mark.parametrize("peak", [10.0, 1e6])
def test_floats_of_an_unknown_unit_are_refused(tmp_path: Path, peak: float) -> None:
    soundfile.write(tmp_path / "a.wav", tone(16_000) * 2 * peak, 16_000, subtype="FLOAT")
    with pytest.raises(InvalidInput, match=r"samples up to .* -1 to 1"):
        audio.read(tmp_path / "a.wav")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_samples_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    sound = tone(16_000)
    sound[100] = value
    soundfile.write(tmp_path / "a.wav", sound, 16_000, subtype="FLOAT")
    with pytest.raises(InvalidInput, match="NaN or infinite"):
        audio.read(tmp_path / "a.wav")


@pytest.mark.parametrize("rate_hz", [16_000, 44_100])
def test_sixty_one_seconds_are_refused_with_both_numbers(tmp_path: Path, rate_hz: int) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(61 * rate_hz, np.float32), rate_hz)
    with pytest.raises(InvalidInput, match=r"61\.00 s long; at most 60 s"):
        audio.read(tmp_path / "a.wav")


def test_a_streamed_wav_of_sixty_one_seconds_is_refused(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.ones(61 * 16_000, np.float32) / 2, 16_000)
    with_data_size(tmp_path / "a.wav", 0)
    with pytest.raises(InvalidInput, match=r"61\.00 s long"):
        audio.read(tmp_path / "a.wav")


@pytest.mark.parametrize("size", [20 * 60 * 88_200, *STREAMED_SIZES])
def test_twenty_minutes_are_refused_before_they_are_read(tmp_path: Path, size: int) -> None:
    """Public cases A6 and D6; the file is a hole behind a header, whatever size that states."""
    path, most_bytes = tmp_path / "a.wav", 16 << 20
    soundfile.write(path, np.zeros(1, np.float32), 44_100)
    head = path.stat().st_size - 2
    with path.open("r+b") as file:
        os.truncate(file.fileno(), head + 20 * 60 * 88_200)
        file.seek(head)
        file.write(b"\x01\x02" * 44_100)  # a stated size of 0 must not look like empty chunks
    with_data_size(path, size)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match=r"\d+\.00 s long; at most 60 s") as refused:
            audio.read(path)
        assert tracemalloc.get_traced_memory()[1] < most_bytes
    finally:
        tracemalloc.stop()
    assert "1200.00 s" in refused.value.message


def test_sixty_seconds_are_accepted(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(60 * 8_000, np.float32), 8_000)
    assert len(audio.read(tmp_path / "a.wav")) == 60 * 16_000


@pytest.mark.parametrize("rate_hz", [100, 1_000_000])
def test_absurd_rates_are_refused(tmp_path: Path, rate_hz: int) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(100, np.float32), rate_hz)
    with pytest.raises(InvalidInput, match=rf"{rate_hz} Hz; 4000 to 384000 Hz"):
        audio.read(tmp_path / "a.wav")


def test_forty_channels_are_refused(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros((100, 40), np.float32), 16_000)
    with pytest.raises(InvalidInput, match="40 channels; 1 to 32"):
        audio.read(tmp_path / "a.wav")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "is empty"), (b"hello, this is text" * 9, "not readable"), (b"RIFF", "not readable")],
)
def test_what_is_no_audio_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(InvalidInput, match=rf"{reason}.*wav, flac and ogg"):
        audio.read(tmp_path / "a.wav")


def test_mp3_is_refused_since_it_may_be_cut_short(tmp_path: Path) -> None:
    """Of a public recording of a minute (silero-vad's test.mp3) libsndfile gives 2.5 s."""
    soundfile.write(tmp_path / "a.mp3", tone(16_000), 16_000)
    with pytest.raises(InvalidInput, match=r"a.mp3 is MP3, which may be cut short; wav, flac"):
        audio.read(tmp_path / "a.mp3")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        audio.read(tmp_path / "nowhere.wav")
    with pytest.raises(InvalidInput, match="cannot be opened"):
        audio.read(tmp_path)


def test_one_sample_at_a_high_rate_is_still_a_sound(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.full(1, 0.5, np.float32), 48_000)
    assert len(audio.read(tmp_path / "a.wav")) == 1


@pytest.mark.parametrize("samples", [0, 1, 24_001])
def test_a_written_wav_counts_exactly_its_samples(tmp_path: Path, samples: int) -> None:
    """Public case A8, on the way out."""
    path = tmp_path / "deep" / "a.wav"
    audio.write(path, tone(24_000, 2)[:samples], 24_000)
    with wave.open(str(path)) as file:
        form = (file.getnchannels(), file.getsampwidth(), file.getframerate(), file.getnframes())
        assert form == (1, 2, 24_000, samples)
        assert len(file.readframes(samples + 9)) == 2 * samples


def test_writing_clips_but_refuses_nan(tmp_path: Path) -> None:
    audio.write(tmp_path / "a.wav", np.array([2.0, -2.0], np.float32), 24_000)
    read, _ = soundfile.read(tmp_path / "a.wav")
    np.testing.assert_allclose(read, [1, -1], atol=1e-3)
    with pytest.raises(InvalidInput, match="finite"):
        audio.write(tmp_path / "a.wav", np.array([np.nan], np.float32), 24_000)
