"""A user's own Whisper, from its Hugging Face folder to the words that it hears."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from transformers import WhisperFeatureExtractor

from build.__main__ import main
from client import audio
from client.turns import TurnClient
from deploy.launcher import Server
from deploy.settings import Settings
from tests.build.own_whispers import SIZES, write_whisper

pytestmark = pytest.mark.server
SAMPLES = Path(__file__).parents[2] / "samples"
PROMPT = 4
LIMIT = SIZES["max_target_positions"] - PROMPT


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Multilingual, of 128 mels, with random weights; and its model in transformers."""
    folder = tmp_path_factory.mktemp("checkpoint")
    return folder, write_whisper(folder, "multilingual")


@pytest.fixture(scope="module")
def client(
    checkpoint: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TurnClient]:
    """Of a server that hears German with it, in float32: its words are those of transformers."""
    base = tmp_path_factory.mktemp("own")
    made = ["asr", "--from", str(checkpoint[0]), "--into", str(base / "models")]
    assert main([*made, "--language", "de", "--precision", "fp32"]) == 0
    settings = Settings(models=["transcribe"], own=[base / "models"], out=base)
    with Server(settings) as server, TurnClient(server.grpc_address) as one:
        yield one


def expected(checkpoint: tuple[Path, Any], sound: Any) -> str:
    """What transformers' generate says to the features that its own extractor makes; its last
    character may be half of one."""
    folder, model = checkpoint
    extract = WhisperFeatureExtractor(feature_size=128)
    features = extract(sound, sampling_rate=16_000, return_tensors="pt").input_features
    with torch.no_grad():
        said = model.generate(
            features, language="de", task="transcribe", max_new_tokens=LIMIT, do_sample=False
        )[0]
    text = Tokenizer.from_file(str(folder / "tokenizer.json")).decode(said.tolist())
    return str(text).rstrip("\ufffd ").lstrip()


@pytest.mark.parametrize("number", [1, 3])
def test_what_it_hears_is_what_the_checkpoint_hears(
    client: TurnClient, checkpoint: tuple[Path, Any], number: int
) -> None:
    """In windows of 30 s, which are all that transformers takes."""
    sound = audio.read(SAMPLES / f"order-{number}.wav")
    words = expected(checkpoint, sound)
    assert len(words) > 10
    assert client.transcribe(sound, min_frames=3000).text.startswith(words)


def test_windows_of_15_s_are_heard_too(client: TurnClient) -> None:
    assert client.transcribe(audio.read(SAMPLES / "order-1.wav")).text
