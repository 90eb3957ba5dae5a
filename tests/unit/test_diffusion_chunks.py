"""Chunks, noise and the source: what the vocoder is given."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.diffusion_lock.chunks import VocoderInput, plan
from python_backends.diffusion_lock.noise import Stream, normal
from python_backends.diffusion_lock.source import Voice, load_voices, voiced
from python_backends.speech import CHANNELS, CONTEXT_FRAMES, HOP, SAMPLE_RATE_HZ, VOICES

VOICE = Voice(1, np.log(180), 0.3, (0.125 * HOP, 0.75 * HOP, 0.125 * HOP))


def frames(count: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, CHANNELS), np.float32)


@pytest.mark.parametrize("length", [*range(1, 130), 183, 184, 185, 193, 194, 195, 1600])
def test_chunks_cover_a_piece_once_and_none_is_short(length: int) -> None:
    chunks = plan(length, stream=True)
    assert [start for start, _ in chunks] == [0, *[stop for _, stop in chunks[:-1]]]
    assert chunks[-1][1] == length
    sizes = [stop - start for start, stop in chunks]
    assert min(sizes) >= min(10, length)
    assert sizes[0] == 24 or len(sizes) == 1
    assert all(size == 80 for size in sizes[1:-1])


def test_without_streaming_there_is_one_chunk() -> None:
    assert plan(500, stream=False) == [(0, 500)]


def test_few_chunk_sizes_occur() -> None:
    inner = {
        stop - start for length in range(200, 1600) for start, stop in plan(length, stream=True)
    }
    assert inner == {24, *range(10, 90)}


def test_chunks_are_slices_of_the_whole_piece() -> None:
    source = VocoderInput.of(frames(257), VOICE, seed=3, piece=1)
    (whole,) = [source.chunk(*chunk) for chunk in plan(257, stream=False)]
    parts = [source.chunk(*chunk) for chunk in plan(257, stream=True)]
    for name, values in whole.items():
        inner = [part[name][:, CONTEXT_FRAMES:-CONTEXT_FRAMES] for part in parts]
        joined = np.concatenate(inner, axis=1)
        assert (joined == values[:, CONTEXT_FRAMES:-CONTEXT_FRAMES]).all(), name
        for before, after in pairwise(parts):
            shared = 2 * CONTEXT_FRAMES
            assert (before[name][:, -shared:] == after[name][:, :shared]).all(), name


def test_the_context_at_the_edges_repeats_frames_unvoiced() -> None:
    given = frames(30)
    given[:, 65] = 1
    chunk = VocoderInput.of(given, VOICE, seed=0, piece=0).chunk(0, 30)
    assert chunk["LATENT"].shape == (1, 40, 64)
    assert chunk["NOISE"].shape == (1, 40, 1202)
    assert chunk["VOICE"].tolist() == [[1]]
    assert (chunk["LATENT"][0, :5] == given[0, :64]).all()
    assert (chunk["F0"][0, -5:] == chunk["F0"][0, -6]).all()
    assert chunk["VOICED"][0].tolist() == [0] * 5 + [1] * 30 + [0] * 5


def test_silence_is_the_smallest_input_and_has_nothing_in_it() -> None:
    source = VocoderInput.silence(VOICE)
    chunk = source.chunk(0, source.frames)
    assert {v.shape[:2] for name, v in chunk.items() if name != "VOICE"} == {(1, 11)}
    assert (chunk["F0"] > 0).all()
    assert chunk["VOICE"].tolist() == [[VOICE.number]]
    assert not any(chunk[name].any() for name in ("LATENT", "VOICED", "PHASE", "NOISE"))


def test_noise_is_a_matter_of_seed_piece_and_purpose() -> None:
    base = normal(1, 2, Stream.FLOW, (50, 66))
    assert base.dtype == np.float32
    assert (base == normal(1, 2, Stream.FLOW, (50, 66))).all()
    for other in ((2, 2, Stream.FLOW), (1, 3, Stream.FLOW), (1, 2, Stream.VOCODER)):
        assert np.abs(np.corrcoef(base.ravel(), normal(*other, (50, 66)).ravel())[0, 1]) < 0.1
    assert abs(base.mean()) < 0.05
    assert abs(base.std() - 1) < 0.05


def test_noise_of_a_shorter_piece_is_a_prefix() -> None:
    assert (
        normal(2**63 - 1, 5, Stream.FLOW, (7, 66))
        == normal(2**63 - 1, 5, Stream.FLOW, (90, 66))[:7]
    ).all()


def test_f0_is_denormalised_and_kept_within_what_a_voice_can_do() -> None:
    given = np.zeros((3, CHANNELS), np.float32)
    given[:, 64] = [0, 100, -100]
    assert VOICE.f0_hz(given) == pytest.approx([180, 600, 40], rel=1e-4)


def test_voicing_is_a_threshold_at_zero() -> None:
    given = np.zeros((3, CHANNELS), np.float32)
    given[:, 65] = [0.2, 0, -3]
    assert voiced(given).tolist() == [1, 0, 0]


def test_the_phase_of_a_steady_voice_advances_by_its_frequency() -> None:
    phase = VOICE.phase(np.full(100, 130.0, np.float32))
    steps = np.diff(np.unwrap(phase.astype(np.float64)))
    expected = 2 * np.pi * 130 * HOP / SAMPLE_RATE_HZ
    assert phase[0] == 0
    assert np.cos(steps - expected) == pytest.approx(np.ones(99), abs=1e-5)
    assert (phase >= 0).all()
    assert (phase <= 2 * np.pi + 1e-6).all()


def test_the_phase_of_a_glide_counts_the_neighbours() -> None:
    f0 = np.array([100, 120, 160], np.float32)
    phase = VOICE.phase(f0)
    first = 2 * np.pi / SAMPLE_RATE_HZ * HOP * (0.125 * 100 + 0.75 * 100 + 0.125 * 120)
    second = 2 * np.pi / SAMPLE_RATE_HZ * HOP * (0.125 * 100 + 0.75 * 120 + 0.125 * 160)
    assert phase[1] == pytest.approx(first % (2 * np.pi), rel=1e-5)
    assert phase[2] == pytest.approx((first + second) % (2 * np.pi), rel=1e-5)


def test_voices_are_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "speech.json"
    with pytest.raises(FileNotFoundError, match="make build"):
        load_voices(path)
    scales = [{"log_f0_mean": mean, "log_f0_std": 0.2} for mean in (5.2, 4.7)]
    whole = {"frame_advance": [37.5, 225, 37.5], "voices": dict(zip(VOICES, scales, strict=True))}
    path.write_text(json.dumps(whole))
    advance = (37.5, 225.0, 37.5)
    assert load_voices(path) == {
        "alto": Voice(0, 5.2, 0.2, advance),
        "baritone": Voice(1, 4.7, 0.2, advance),
    }
    path.write_text(json.dumps({**whole, "frame_advance": [1, 2]}))
    with pytest.raises(ValueError, match="description of voices"):
        load_voices(path)
    path.write_text(json.dumps({**whole, "voices": {"alto": scales[0]}}))
    with pytest.raises(ValueError, match="baritone"):
        load_voices(path)
    path.write_text(json.dumps({"voices": whole["voices"]}))
    with pytest.raises(ValueError, match="frame_advance"):
        load_voices(path)
