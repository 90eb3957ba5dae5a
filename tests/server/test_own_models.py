"""A user's own LLM, from its Hugging Face folder to the words that a caller hears."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from build.__main__ import main
from deploy.launcher import Server
from deploy.settings import Settings
from tests.build.own_checkpoints import write_llm
from tests.server.asking import Ask, ask, asking

pytestmark = pytest.mark.server
CAPACITY, LIMIT = 512, 24
SYSTEM = "Answer in one sentence."


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """With random weights; and its model in transformers."""
    folder = tmp_path_factory.mktemp("checkpoint")
    return folder, write_llm(folder, "qwen3", max_position_embeddings=CAPACITY)


@pytest.fixture(scope="module")
def own(checkpoint: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`think` of it, in float32: its words are those of transformers."""
    base = tmp_path_factory.mktemp("own")
    (base / "system.txt").write_text(SYSTEM)
    made = ["think", "--from", str(checkpoint[0]), "--into", str(base / "models")]
    made += ["--capacity", str(CAPACITY), "--max-new-tokens", str(LIMIT), "--precision", "fp32"]
    assert main([*made, "--system", str(base / "system.txt")]) == 0
    with Server(Settings(models=["think"], own=[base / "models"], out=base)) as server:
        yield server


@pytest.fixture(scope="module")
def stub(own: Server) -> Iterator[Ask]:
    with asking(own.grpc_address) as stub:
        yield stub


def expected(checkpoint: tuple[Path, Any], heard: str) -> str:
    """What transformers says to the prompt that its template makes."""
    folder, model = checkpoint
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompt = (
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{heard}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    with torch.no_grad():
        said = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=LIMIT, do_sample=False
        )[0]
    return str(tokenizer.decode(said[ids.shape[1] :].tolist()))


@pytest.mark.parametrize("heard", ["Hello there", "What is on the menu today?"])
def test_its_words_are_those_of_the_checkpoint(
    stub: Ask, checkpoint: tuple[Path, Any], heard: str
) -> None:
    answer = ask(stub, heard, heard)
    assert answer.error == ""
    assert "".join("".join(answer.pieces).split()) == "".join(expected(checkpoint, heard).split())
    assert answer.status in ("stop", "length")


def test_what_does_not_fit_it_is_refused(stub: Ask) -> None:
    assert "code=INVALID_INPUT" in ask(stub, "burger " * 600, "long").error
