"""The prosody step graphs against the torch model, whole utterances at a time."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from build.voice import weights
from build.voice.export import TARGETS
from build.voice.prosody_lm import HEAD_WIDTH, HEADS, LAYERS, MAX_PHONEMES, WIDTH, ProsodyLM, likely
from python_backends.speech import DURATIONS, PITCHES

Array = NDArray[np.generic]
POOLS = [f"{name}{i}" for i in range(LAYERS) for name in "kv"]

ALTO = torch.tensor([[0]])


@pytest.fixture(scope="module")
def lm() -> ProsodyLM:
    return weights.load_prosody()


@pytest.fixture(scope="module", params=["model.onnx", "portable.onnx"])
def step(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "Pool":
    path = tmp_path_factory.mktemp("prosody") / request.param
    TARGETS["prosody_step", request.param](path)
    return Pool(path)


class Pool:
    """Two rows of key-value slots, bound in place as a decode engine binds them."""

    rows = 2

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options)
        shape = (self.rows, HEADS, MAX_PHONEMES, HEAD_WIDTH)
        self.pools = {name: np.zeros(shape, np.float32) for name in POOLS}
        self.encoded = np.zeros((self.rows, MAX_PHONEMES, WIDTH), np.float32)

    def __call__(self, ids: Array, start: Array, noise: Array, rows: int) -> Array:
        """One step of the first `rows` rows; returns next [rows, 2]."""
        chosen = np.zeros((rows, 2), np.int64)
        binding = self.session.io_binding()
        fixed = {"ids": ids, "start": start, "enc": self.encoded[:rows], "noise": noise}
        for name, array in (fixed | {n: p[:rows] for n, p in self.pools.items()}).items():
            address = array.ctypes.data
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, address)
            if name in self.pools:
                output = f"{name[0]}o{name[1:]}"
                binding.bind_output(output, "cpu", 0, array.dtype, array.shape, address)
        binding.bind_output("next", "cpu", 0, np.int64, chosen.shape, chosen.ctypes.data)
        self.session.run_with_iobinding(binding)
        return chosen

    def admit(self, row: int, encoded: Array) -> None:
        self.encoded[row, : len(encoded)] = encoded


def utterance(count: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 178, count))


def gumbel(count: int, temperature: float) -> Array:
    noise = np.random.default_rng(count).gumbel(size=(count, DURATIONS + PITCHES))
    return (temperature * noise).astype(np.float32)


@pytest.mark.parametrize("count", [1, 2, 41])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 2.0])
def test_stepping_through_the_pool_chooses_what_torch_chooses(
    step: Pool, lm: ProsodyLM, count: int, temperature: float
) -> None:
    phonemes, noise = utterance(count, 3), gumbel(count, temperature)
    expected = lm.generate(phonemes, torch.from_numpy(noise)).numpy()
    step.admit(0, lm.encode(phonemes[None], ALTO)[0].numpy())
    previous, found = np.zeros((1, 1, 2), np.int64), []
    for i in range(count):
        found.append(step(previous, np.array([i]), noise[i : i + 1], 1)[0])
        previous = found[-1][None, None] + 1
    np.testing.assert_array_equal(found, expected)


def test_rows_at_different_steps_do_not_disturb_each_other(step: Pool, lm: ProsodyLM) -> None:
    silent = np.zeros((2, DURATIONS + PITCHES), np.float32)
    texts = [utterance(12, 5), utterance(30, 6)]
    expected = [lm.generate(text).numpy() for text in texts]
    for row, text in enumerate(texts):
        step.admit(row, lm.encode(text[None], ALTO)[0].numpy())
    first = np.zeros((1, 8, 2), np.int64)
    first[0, 1:] = expected[0][:7] + 1
    step(first, np.array([0]), silent[:1], 1)
    previous = np.stack([expected[0][7:8] + 1, np.zeros((1, 2), np.int64)])
    for i in range(4):
        chosen = step(previous, np.array([8 + i, i]), silent, 2)
        np.testing.assert_array_equal(chosen, [expected[0][8 + i], expected[1][i]])
        previous = chosen[:, None] + 1


def test_the_admission_graph_encodes_as_torch_does(lm: ProsodyLM, tmp_path: Path) -> None:
    path = tmp_path / "admit.onnx"
    TARGETS["prosody_step", "admit.onnx"](path)
    session = onnxruntime.InferenceSession(path)
    for batch, count in ((1, 1), (2, 9), (1, MAX_PHONEMES)):
        phonemes = np.random.default_rng(count).integers(0, 178, (batch, count))
        voice = np.arange(batch)[:, None] % 2
        (found,) = session.run(["enc"], {"PHONEMES": phonemes, "VOICE": voice})
        expected = lm.encode(torch.from_numpy(phonemes), torch.from_numpy(voice)).numpy()
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_padding_a_batch_does_not_change_what_is_encoded(lm: ProsodyLM) -> None:
    phonemes = utterance(6, 8)[None]
    padded = torch.nn.functional.pad(phonemes, (0, 5))
    mask = (torch.arange(11) < 6).float()[None, :, None]
    found = lm.encode(padded, ALTO, mask)[:, :6]
    torch.testing.assert_close(found, lm.encode(phonemes, ALTO), atol=1e-4, rtol=0)


def test_what_is_unlikely_is_never_drawn_however_hot(lm: ProsodyLM) -> None:
    logits = torch.tensor([[0.0, -2.2, -2.4, -50.0], [3.0, 3.0, 0.6, 0.8]])
    assert likely(logits).isfinite().tolist() == [
        [True, True, False, False],
        [True, True, False, True],
    ]
    assert (likely(logits) + 1e9 * torch.eye(4)[[2, 2]]).argmax(1).tolist() == [0, 0]
