"""Whisper's graphs in the model repository against the PyTorch modules they come from."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from tokenizers import Tokenizer

from build.errors import WeightsInvalid
from build.whisper import weights
from build.whisper.model import Decoder, Encoder, load_decoder, load_encoder
from python_backends.encoder_window.mel import log_mel
from tests.build.greedy import REPOSITORY, Context, Stepper, open_graph

SAMPLES = Path(__file__).parents[2] / "samples"
FRAMES = 1500
CROSS = 1500
PROMPT = [50257, 50362]
END = 50256


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder()


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return load_decoder()


@pytest.fixture(scope="module")
def hidden(encoder: Encoder) -> torch.Tensor:
    """States [3, 750, 384] of three spoken orders."""
    sounds = [soundfile.read(SAMPLES / f"order-{n}.wav", dtype="float32")[0] for n in (1, 2, 4)]
    mel = np.stack([log_mel(sound, FRAMES) for sound in sounds])
    with torch.no_grad():
        states: torch.Tensor = encoder(torch.from_numpy(mel))
    return states


@pytest.fixture(scope="module")
def cross(hidden: torch.Tensor) -> Context:
    """Cross pools of those orders, filled by admit.onnx; stale values beyond the valid states."""
    admit = open_graph(REPOSITORY / "asr_decode_step/1/admit.onnx")
    names = [node.name for node in admit.get_outputs()]
    filled = dict(zip(names, admit.run(names, {"HIDDEN": hidden.numpy()}), strict=True))
    count, length = hidden.shape[:2]
    pools = {name: np.full((count, 6, CROSS, 64), 3.0, np.float32) for name in names}
    for name, pool in pools.items():
        pool[:, :, :length] = filled[name]
    return pools | {"clen": np.full(count, length, np.int64)}


@pytest.mark.parametrize(
    ("batch", "frames"),
    [(1, 2), (2, 30), (8, 50), (3, 1500), pytest.param(1, 3000, marks=pytest.mark.full)],
)
def test_the_encoder_graph_gives_the_states_of_the_module(
    encoder: Encoder, batch: int, frames: int
) -> None:
    mel = np.random.default_rng(0).standard_normal((batch, 80, frames)).astype(np.float32)
    graph = open_graph(REPOSITORY / "asr_encoder/1/model.onnx")
    (states,) = graph.run(["HIDDEN"], {"MEL": mel})
    with torch.no_grad():
        expected = encoder(torch.from_numpy(mel)).numpy()
    assert states.shape == (batch, frames // 2, 384)
    np.testing.assert_allclose(states, expected, atol=2e-4, rtol=1e-4)


def test_admission_gives_the_cross_keys_and_values_of_every_layer(
    decoder: Decoder, hidden: torch.Tensor, cross: Context
) -> None:
    with torch.no_grad():
        expected = decoder.cross(hidden)
    for layer, pair in enumerate(expected):
        for side, values in zip("kv", pair, strict=True):
            found = cross[f"c{side}{layer}"][:, :, : hidden.shape[1]]
            np.testing.assert_allclose(found, values.numpy(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("chunk", [1, 2])
@pytest.mark.parametrize("graph", ["portable.onnx", "model.onnx"])
def test_three_orders_decode_together_to_the_tokens_torch_gives_each_alone(
    graph: str, chunk: int, decoder: Decoder, hidden: torch.Tensor, cross: Context
) -> None:
    path = REPOSITORY / "asr_decode_step/1" / graph
    stepper = Stepper(path, rows=3, capacity=448, context=cross)
    expected = [decoder.greedy(row[None], PROMPT, end=END) for row in hidden]
    assert stepper.greedy([PROMPT] * 3, end=END, limit=60, chunk=chunk) == expected
    text = Tokenizer.from_file(str(REPOSITORY / "asr_decode/1/tokenizer.json")).decode(expected[0])
    assert "two cheeseburgers and a large" in text.lower().replace("2", "two")


def test_generation_settings_name_the_tokens_of_the_tokenizer() -> None:
    settings = weights.generation()
    assert settings["prompt"] == PROMPT
    assert settings["end"] == END
    assert settings["no_speech"] == 50361


def test_a_cut_or_lengthened_weights_file_is_refused(tmp_path: Path) -> None:
    whole = weights.path().read_bytes()
    broken = tmp_path / "model.bin"
    for content in (whole[:1000], whole + b"x", b"\x01" + whole[1:]):
        broken.write_bytes(content)
        with pytest.raises(WeightsInvalid):
            weights.read_ctranslate2(broken)
