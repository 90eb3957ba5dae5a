"""AUDIO in every shape callers send it, and the windows made of it."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from client import audio
from python_backends.encoder_window.audio import checked, is_silent, is_tone
from python_backends.encoder_window.windows import LIMIT, split, to_windows
from python_backends.errors import InvalidInput

RATE = 16_000
SAMPLES = Path(__file__).parents[2] / "samples"


def tone(seconds: float, amplitude: float = 0.5) -> NDArray[np.float32]:
    """440 Hz."""
    time_s = np.arange(round(seconds * RATE)) / RATE
    return (amplitude * np.sin(2 * np.pi * 440 * time_s)).astype(np.float32)


def test_no_samples_are_refused_with_what_is_accepted() -> None:
    with pytest.raises(InvalidInput, match=r"no samples; 0.01 to 60 s of 16 kHz mono float32"):
        checked(np.zeros((1, 0), np.float32), 60)


def test_two_channels_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"shape \[2, 100\]"):
        checked(np.zeros((2, 100), np.float32), 60)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite_are_refused(bad: float) -> None:
    sound = tone(0.1)
    sound[7] = bad
    with pytest.raises(InvalidInput, match="NaN or infinite"):
        checked(sound[None], 60)


def test_too_long_audio_is_refused_with_the_limit_and_its_length() -> None:
    with pytest.raises(InvalidInput, match=r"lasts 61.00 s; 0.01 to 60 s"):
        checked(np.zeros((1, 61 * RATE), np.float32), 60)


@pytest.mark.parametrize("scale", [2**15 - 1, 2**15, 2**23 - 1, 2**31])
def test_integer_samples_sent_as_floats_are_brought_to_full_scale_one(scale: int) -> None:
    """Public case A12."""
    sound = tone(0.5, amplitude=1)
    assert np.abs(checked((sound * scale)[None], 60) - sound).max() < 1e-4


def test_unsigned_bytes_centred_at_128_are_brought_to_full_scale_one() -> None:
    """Public case A12."""
    sound = tone(0.5)
    sent = np.round(sound * 128 + 128).astype(np.float32)
    assert np.abs(checked(sent[None], 60) - sound).max() < 0.01


def test_a_little_overshoot_is_left_as_it_is() -> None:
    sound = tone(0.1, amplitude=1.5)
    assert (checked(sound[None], 60) == sound).all()


@pytest.mark.parametrize("peak", [2.1, 3, 10, 255])
def test_a_mix_far_too_loud_is_refused_and_not_taken_for_quiet_integers(peak: float) -> None:
    """Public case A12: divided by 32768, it would be heard as silence."""
    with pytest.raises(InvalidInput, match=r"peaks at .*; full scale is 1"):
        checked((tone(0.5, amplitude=1) * np.float32(peak))[None], 60)


@pytest.mark.parametrize("low", [-3, 0])
def test_the_silence_of_integers_is_silence(low: int) -> None:
    """Public case A12: a microphone's last bits, with and without negative ones; not bytes."""
    bits = np.random.default_rng(0).integers(low, 4, RATE).astype(np.float32)
    assert is_silent(checked(bits[None], 60))


def test_peaks_beyond_every_integer_format_are_refused() -> None:
    with pytest.raises(InvalidInput, match="full scale"):
        checked((tone(0.1) * 1e12)[None], 60)


def test_silence_is_told_from_sound_whatever_the_offset() -> None:
    assert is_silent(np.zeros(RATE, np.float32))
    assert is_silent(np.full(RATE, 0.25, np.float32))
    assert is_silent(tone(1, amplitude=1e-4))
    assert not is_silent(tone(1, amplitude=0.01))


@pytest.mark.parametrize("seconds", [0.5, 3, 12, 30])
def test_the_noise_of_a_quiet_microphone_is_silence(seconds: float) -> None:
    """A 16 bit microphone's own noise, -75 dBFS, with the offset that cheap ones have."""
    noise = np.random.default_rng(1).normal(0.02, 10 ** (-75 / 20), round(seconds * RATE))
    (window,) = to_windows(noise.astype(np.float32), 0)
    assert (window.silent, window.states) == (True, 0)


def test_a_quiet_word_in_a_long_silence_is_sound() -> None:
    sound = np.zeros(20 * RATE, np.float32)
    sound[9 * RATE : round(9.2 * RATE)] = tone(0.2, amplitude=0.003)
    assert not is_silent(sound)


@pytest.mark.parametrize("hz", [60, 200, 441.3, 1000, 3000, 7000])
@pytest.mark.parametrize("amplitude", [0.003, 0.3, 1.0])
def test_a_steady_tone_is_not_encoded(hz: float, amplitude: float) -> None:
    time_s = np.arange(round(3.3 * RATE)) / RATE
    sound = (amplitude * np.sin(2 * np.pi * hz * time_s)).astype(np.float32)
    assert is_tone(sound)
    assert [window.silent for window in to_windows(sound, 0)] == [True]


def dial_tone(seconds: float) -> NDArray[np.float32]:
    """350 and 440 Hz."""
    time_s = np.arange(round(seconds * RATE)) / RATE
    both = np.sin(2 * np.pi * 350 * time_s) + np.sin(2 * np.pi * 440 * time_s)
    return (0.2 * both).astype(np.float32)


def test_a_dial_tone_that_begins_late_is_not_encoded() -> None:
    assert is_tone(np.concatenate([np.zeros(RATE, np.float32), dial_tone(3)]))


def test_what_is_said_over_a_tone_or_behind_one_is_encoded() -> None:
    """The words are 25 dB below the tone on average, and barely heard."""
    words = audio.read(SAMPLES / "order-1.wav")[: 3 * RATE]
    words *= 0.1 / np.abs(words).max()
    assert not is_tone(dial_tone(3) + words)
    assert not is_tone(np.concatenate([dial_tone(3), words]))
    assert not is_tone(np.concatenate([words, dial_tone(3)]))
    assert not is_tone(np.concatenate([dial_tone(3), words[RATE : RATE + RATE // 4]]))


def test_speech_is_no_tone_wherever_it_is_looked_at() -> None:
    for path in sorted(SAMPLES.glob("*.wav")):
        speech = audio.read(path)
        for start in range(0, len(speech) - RATE // 2, RATE // 8):
            part = speech[start : start + RATE // 2]
            assert is_silent(part) or not is_tone(part), (path.name, start)


def test_noise_and_what_is_shorter_than_half_a_second_are_no_tones() -> None:
    assert not is_tone(np.random.default_rng(1).normal(0, 0.1, RATE).astype(np.float32))
    assert not is_tone(dial_tone(0.49))
    assert not is_tone(np.zeros(0, np.float32))


def test_one_click_in_silence_is_sound() -> None:
    sound = np.zeros(RATE, np.float32)
    sound[5000] = 0.5
    assert not is_silent(sound)


@pytest.mark.parametrize("samples", [1, 2, 159, 160, 199, 200, 201, 399, 400, 401])
def test_clips_of_a_few_samples_make_one_window(samples: int) -> None:
    """Public case A1."""
    (window,) = to_windows(tone(1)[:samples], 0)
    assert (window.start, window.end, window.frames) == (0, samples, 1500)


def test_the_bucket_leaves_half_a_second_of_room() -> None:
    assert [w.frames for w in to_windows(tone(14.5), 0)] == [1500]
    assert [w.frames for w in to_windows(tone(14.51), 0)] == [3000]
    assert [w.frames for w in to_windows(tone(30), 0)] == [3000]


def test_min_frames_raises_the_bucket_and_never_lowers_it() -> None:
    assert [w.frames for w in to_windows(tone(1), 1501)] == [3000]
    assert [w.frames for w in to_windows(tone(20), 10)] == [3000]


def test_long_audio_is_cut_at_the_quietest_place_before_the_limit() -> None:
    sound = tone(40)
    sound[27 * RATE : 27 * RATE + RATE // 5] = 0
    first, second = split(sound)
    assert first[0] == 0
    assert 27 * RATE <= first[1] <= 27 * RATE + RATE // 5
    assert second == (first[1], 40 * RATE)


def test_windows_cover_everything_once_and_none_is_too_long() -> None:
    spans = split(np.random.default_rng(3).normal(0, 0.1, 60 * RATE).astype(np.float32))
    assert [start for start, _ in spans[1:]] == [end for _, end in spans[:-1]]
    assert (spans[0][0], spans[-1][1]) == (0, 60 * RATE)
    assert all(0 < end - start <= LIMIT for start, end in spans)


def spoken(seed: int, seconds: float) -> tuple[NDArray[np.float32], list[tuple[int, int]]]:
    """Words of 0.1 to 0.9 s, each a tone of its own number, with pauses of 0.15 to 0.6 s and faint
    noise everywhere; and the span of each word."""
    random = np.random.default_rng(seed)
    sound = random.normal(0, 1e-3, round(seconds * RATE)).astype(np.float32)
    spans: list[tuple[int, int]] = []
    at = round(random.uniform(0, 0.5) * RATE)
    while (end := at + round(random.uniform(0.1, 0.9) * RATE)) < len(sound):
        time_s = np.arange(end - at) / RATE
        loud = random.uniform(0.02, 0.5)
        sound[at:end] += loud * np.sin(2 * np.pi * (200 + 10 * len(spans)) * time_s)
        spans.append((at, end))
        at = end + round(random.uniform(0.15, 0.6) * RATE)
    return sound, spans


@pytest.mark.parametrize("seed", range(8))
def test_beyond_thirty_seconds_every_word_is_whole_in_one_window_and_in_order(seed: int) -> None:
    sound, words = spoken(seed, 30.0 + 29.9 * (seed + 1) / 8)
    windows = to_windows(sound, 0)
    assert len(windows) >= 2
    heard = [
        [number for number, (at, end) in enumerate(words) if w.start <= at and end <= w.end]
        for w in windows
    ]
    assert [number for window in heard for number in window] == list(range(len(words)))
    assert (np.concatenate([window.sound for window in windows]) == sound).all()


def test_a_word_at_the_very_limit_is_not_cut() -> None:
    """The quiet place is before it, and what follows begins with it."""
    sound = tone(45)
    sound[29 * RATE : round(29.3 * RATE)] = 0
    (_, cut), (start, _) = split(sound)
    assert cut == start
    assert 29 * RATE <= cut <= round(29.3 * RATE)


def test_sound_without_any_pause_loses_and_doubles_nothing() -> None:
    sound = tone(59.9)
    assert (np.concatenate([window.sound for window in to_windows(sound, 0)]) == sound).all()


def test_a_minute_with_early_pauses_is_three_windows_in_order() -> None:
    """Public case C7, its front: the pauses at 25.5 and 51 s are the quietest places."""
    sound = np.random.default_rng(4).normal(0, 0.1, 60 * RATE).astype(np.float32)
    for pause_s in (25.5, 51):
        sound[round(pause_s * RATE) :][: RATE // 5] = 0
    first, second, third = to_windows(sound, 0)
    assert [w.frames for w in (first, second, third)] == [3000, 3000, 1500]
    assert first.end == second.start == pytest.approx(25.6 * RATE, abs=RATE // 10)
    assert second.end == third.start == pytest.approx(51.1 * RATE, abs=RATE // 10)
    assert third.end == 60 * RATE


def test_silence_is_cut_as_late_as_possible() -> None:
    assert len(split(np.zeros(59 * RATE, np.float32))) == 2


def test_a_window_tells_its_place_in_milliseconds_and_its_states() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 29 * RATE).astype(np.float32)
    windows = to_windows(np.concatenate([noise, np.zeros(15 * RATE, np.float32)]), 0)
    assert windows[0].span_ms[0] == 0
    assert windows[-1].span_ms[1] == 44_000
    assert [window.states for window in windows] == [1500, 0]
