"""The vocoder: its graph against torch, its sound against hibari's, its chunks."""

import numpy as np
import onnxruntime
import pytest
import torch
from hibari import dsp
from numpy.typing import NDArray

from build.voice import weights
from build.voice.export import TARGETS
from build.voice.speaker import pulse_phase
from build.voice.vocoder import Vocoder, frame_advance
from python_backends.speech import BINS, CONTEXT_FRAMES, HOP, LATENT, NOISE, SAMPLE_RATE_HZ, VOICES

Array = NDArray[np.float32]
INPUTS = ("LATENT", "F0", "VOICED", "PHASE", "NOISE")
INNER = slice(CONTEXT_FRAMES, -CONTEXT_FRAMES)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> onnxruntime.InferenceSession:
    path = tmp_path_factory.mktemp("vocoder") / "model.onnx"
    TARGETS["vocoder", "model.onnx"](path)
    return onnxruntime.InferenceSession(path)


@pytest.fixture(scope="module")
def vocoder() -> Vocoder:
    return weights.load_vocoder()


def utterance(frames: int, seed: int = 0) -> dict[str, Array]:
    """A gliding voice with an unvoiced stretch in its middle; batch of one."""
    rng = np.random.default_rng(seed)
    f0 = (190 + 60 * np.sin(np.arange(frames) / 7 + seed)).astype(np.float32)
    voiced = np.ones(frames)
    voiced[frames // 3 : frames // 2] = 0
    arrays = (
        rng.standard_normal((frames, LATENT)),
        f0,
        voiced,
        pulse_phase(f0),
        rng.standard_normal((frames, NOISE)),
    )
    rows = {n: a.astype(np.float32)[None] for n, a in zip(INPUTS, arrays, strict=True)}
    return {**rows, "VOICE": np.array([[seed % len(VOICES)]])}


def in_torch(vocoder: Vocoder, inputs: dict[str, Array]) -> Array:
    speech, _ = vocoder(*map(torch.from_numpy, inputs.values()))
    return np.asarray(speech.numpy())


def by_hibari(vocoder: Vocoder, inputs: dict[str, Array]) -> Array:
    """hibari's own numpy synthesis of the same spectra, F0 and noise, without its end frames."""

    class GivenNoise:
        def standard_normal(self, shape: tuple[int, int], dtype: type) -> Array:
            return pairs.reshape(shape)

    noise = inputs["NOISE"][0].T
    pairs = np.ascontiguousarray(np.stack([noise[:BINS], noise[BINS:]], -1))
    head = int(inputs["VOICE"][0, 0])
    weight, bias = vocoder.weight[head].numpy(), vocoder.bias[head].numpy()
    spectra = (inputs["LATENT"][0] @ weight + bias).T
    parts = [np.ascontiguousarray(part) for part in np.split(spectra, 5)]
    f0 = inputs["F0"][0] * inputs["VOICED"][0]
    return np.asarray(dsp.synth(*parts, f0, GivenNoise()).reshape(-1, HOP)[INNER])


@pytest.mark.parametrize(
    ("batch", "frames"), [(1, 11), (2, 12), (8, 11), (8, 53), (1, 400), (1, 1610)]
)
def test_the_graph_equals_torch(
    session: onnxruntime.InferenceSession, vocoder: Vocoder, batch: int, frames: int
) -> None:
    """Public cases I2 and J6: least, odd and most frames with context; and batches against rows."""
    rows = [utterance(frames, seed) for seed in range(batch)]
    inputs = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    speech, rate = session.run(None, inputs)
    assert speech.shape == (batch, (frames - 2 * CONTEXT_FRAMES) * HOP)
    assert rate.tolist() == [[SAMPLE_RATE_HZ]] * batch
    assert rate.dtype == np.int32
    np.testing.assert_allclose(speech, in_torch(vocoder, inputs), atol=2e-3)
    alone, _ = session.run(None, rows[-1])
    np.testing.assert_allclose(speech[-1:], alone, atol=1e-4)


@pytest.mark.parametrize("scale", [0, 1, 100, 1e6, 1e30])
def test_whatever_finite_frames_come_the_sound_is_finite(
    session: onnxruntime.InferenceSession, scale: float
) -> None:
    """Public case I1: nothing checks the sound behind the vocoder, so it must not be able to be
    worse than its frames, which the stage before it does check."""
    inputs = utterance(30)
    inputs["LATENT"] = (scale * np.sign(inputs["LATENT"])).astype(np.float32)
    speech, _ = session.run(None, inputs)
    assert np.isfinite(speech).all()
    assert np.sqrt(np.mean(speech**2)) > 1e-4


@pytest.mark.parametrize("voice", range(len(VOICES)), ids=VOICES)
def test_a_voiced_piece_sounds_as_hibari_makes_it(vocoder: Vocoder, voice: int) -> None:
    inputs = utterance(90, voice)
    assert inputs["VOICE"].tolist() == [[voice]]
    inputs["VOICED"][:] = 1
    expected = by_hibari(vocoder, inputs)
    found = in_torch(vocoder, inputs).reshape(-1, HOP)
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())


def test_a_partly_voiced_piece_sounds_as_hibari_makes_it_away_from_the_edges_of_voicing(
    vocoder: Vocoder,
) -> None:
    """hibari lets F0 fall to 40 Hz across an edge; ours keeps its pitch and is gated half way.

    So the two differ within a window of an edge, and by the phase of the pulses after a gap.
    """
    inputs = utterance(90)
    expected = by_hibari(vocoder, inputs)
    found = in_torch(vocoder, inputs).reshape(-1, HOP)
    before, inside = (
        slice(0, 30 - 4 - CONTEXT_FRAMES),
        slice(34 - CONTEXT_FRAMES, 41 - CONTEXT_FRAMES),
    )
    tolerance = 1e-3 * np.abs(expected).max()
    for frames in (before, inside):
        np.testing.assert_allclose(found[frames], expected[frames], atol=tolerance)


def test_heads_of_the_two_voices_are_not_the_same(vocoder: Vocoder) -> None:
    alto = utterance(30)
    baritone = {**alto, "VOICE": np.array([[1]])}
    found, other = in_torch(vocoder, alto), in_torch(vocoder, baritone)
    assert np.abs(found - other).max() > 0.1 * np.abs(found).max()


@pytest.mark.parametrize("chunk", [1, 7, 32])
def test_chunks_with_context_join_to_the_sound_of_the_whole_piece(
    session: onnxruntime.InferenceSession, chunk: int
) -> None:
    """Public case I3: the context is what the graph looks at."""
    whole = utterance(75)
    expected, _ = session.run(None, whole)
    joined = []
    for start in range(0, 75 - 2 * CONTEXT_FRAMES, chunk):
        window = slice(start, min(start + chunk + 2 * CONTEXT_FRAMES, 75))
        joined.append(
            session.run(None, {n: a if n == "VOICE" else a[:, window] for n, a in whole.items()})[0]
        )
    np.testing.assert_allclose(np.concatenate(joined, 1), expected, atol=1e-4)


def test_the_phase_a_frame_begins_with_is_where_the_previous_one_ended(vocoder: Vocoder) -> None:
    f0 = np.array([100, 180, 300, 250, 90, 90, 400], np.float32)
    phase = pulse_phase(f0)
    assert sum(frame_advance()) == pytest.approx(HOP)
    per_sample = np.interp(np.arange(7 * HOP), (np.arange(7) + 0.5) * HOP - 0.5, f0)
    ends = 2 * np.pi * np.cumsum(per_sample)[HOP - 1 :: HOP] / SAMPLE_RATE_HZ
    np.testing.assert_allclose(np.exp(1j * phase[1:]), np.exp(1j * ends[:-1]), atol=1e-6)
