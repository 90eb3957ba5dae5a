"""SmolLM2's step graphs against the PyTorch model with the ordering LoRA merged."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from build.llama.model import Llama
from build.smollm import weights
from build.smollm.evaluate import QUALITY, evaluate
from build.smollm.export import CAPACITY, PORTABLE, merged_model
from build.smollm.held_out import CONVERSATIONS
from build.smollm.talker import Served
from python_backends.ordering.prompt import Utterance, prompt_tokens
from tests.build.greedy import REPOSITORY, Stepper

LIMIT = 24
HISTORY = [
    Utterance("user", "Hi, I would like two cheeseburgers and a large Coke please."),
    Utterance("assistant", "Got it, two cheeseburgers and a large Coke. Anything else?"),
]


def encode(text: str) -> list[int]:
    return list(weights.tokenizer().encode(text, add_special_tokens=False).ids)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    return [
        prompt_tokens([], "Can I get 3 tacos without onions?", encode),
        prompt_tokens(HISTORY, "Do you have pizza?", encode),
        prompt_tokens([], "Hello.", encode),
    ]


@pytest.fixture(scope="module")
def model() -> Llama:
    return merged_model()


@pytest.fixture(scope="module")
def expected(model: Llama, prompts: list[list[int]]) -> list[list[int]]:
    return [model.greedy(prompt, end=weights.end_token(), limit=LIMIT) for prompt in prompts]


def test_the_int8_graph_says_what_torch_says_alone_batched_and_in_chunks(
    prompts: list[list[int]], expected: list[list[int]]
) -> None:
    path = REPOSITORY / "think_step/1/model.onnx"
    stepper = Stepper(path, rows=3, capacity=CAPACITY, context={})
    end = weights.end_token()
    assert stepper.greedy(prompts, end=end, limit=LIMIT, chunk=16) == expected
    for pool in stepper.pools.values():
        pool[:] = 3.0
    assert stepper.greedy(prompts[:1], end=end, limit=LIMIT) == expected[:1]


@pytest.mark.full
def test_the_portable_graph_says_what_torch_says(
    tmp_path: Path, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    path = tmp_path / "portable.onnx"
    PORTABLE["think_step", "portable.onnx"](path)
    stepper = Stepper(path, rows=3, capacity=CAPACITY, context={})
    assert stepper.greedy(prompts, end=weights.end_token(), limit=LIMIT, chunk=16) == expected


def test_cached_decoding_gives_the_logits_of_one_pass(
    model: Llama, prompts: list[list[int]]
) -> None:
    import torch

    ids = torch.tensor([prompts[0][:24]])
    with torch.no_grad():
        whole, _ = model(ids)
        _, cache = model(ids[:, :10])
        rest, _ = model(ids[:, 10:], cache)
    torch.testing.assert_close(rest, whole[:, 10:], atol=1e-4, rtol=1e-4)


def test_the_shipped_tokenizer_is_the_one_of_the_weights() -> None:
    shipped = Tokenizer.from_file(str(REPOSITORY / "think/1/tokenizer.json"))
    line = "<|im_start|>user\nI'd like 12 tacos, please!<|im_end|>\n"
    assert shipped.encode(line, add_special_tokens=False).ids == encode(line)
    assert shipped.decode(encode("Two cheeseburgers, please.")) == "Two cheeseburgers, please."


@pytest.mark.full
def test_the_exported_graph_takes_orders_as_the_quality_report_has_it() -> None:
    report = json.loads(QUALITY.read_text())
    found = evaluate(Served(REPOSITORY / "think_step/1", len(CONVERSATIONS)), lambda _: None)
    assert found["held"] == report["held_out"]
