"""Checkpoints that users bring for `think`, against transformers."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from build.__main__ import main
from build.errors import CheckpointUnfit
from build.llama.graph import step_model
from build.own.checkpoint import Checkpoint
from build.own.llama import ends_of, model_of, sizes_of
from build.step_graph import FusedKernels, PortableKernels, StepGraph
from deploy.errors import RepositoryError
from deploy.repositories import read_models, to_load
from deploy.settings import REPOSITORIES
from tests.build.greedy import Stepper
from tests.build.own_checkpoints import FAMILIES, change, pickled, without, write_llm

CAPACITY = 256
CLOSE = 1e-3
LIMIT = 20
PROMPTS = ([5, 80, 11, 200, 42, 7, 19], [120, 3, 260, 77])


def expected(model: Any, ids: list[int]) -> Any:
    """Logits of transformers behind each token, [T, V]."""
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def greedy(model: Any, ids: list[int]) -> list[int]:
    """What transformers says next."""
    ids = list(ids)
    for _ in range(LIMIT):
        ids.append(int(expected(model, ids)[-1].argmax()))
    return ids[-LIMIT:]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_in_pytorch_computes_what_transformers_does(
    tmp_path: Path, family: str
) -> None:
    theirs = write_llm(tmp_path, family)
    checkpoint = Checkpoint(tmp_path)
    ours = model_of(checkpoint, sizes_of(checkpoint, CAPACITY))
    ids = np.random.default_rng(0).integers(0, 300, 100).tolist()
    with torch.no_grad():
        hidden, _ = ours(torch.tensor([ids]))
        found = ours.logits(hidden[0])
    torch.testing.assert_close(found, expected(theirs, ids), atol=CLOSE, rtol=0)


@pytest.mark.parametrize("kernels", [FusedKernels, PortableKernels])
@pytest.mark.parametrize("family", FAMILIES)
def test_step_graphs_compute_what_transformers_does_alone_batched_and_in_chunks(
    tmp_path: Path, family: str, kernels: type[StepGraph]
) -> None:
    theirs = write_llm(tmp_path, family)
    checkpoint = Checkpoint(tmp_path)
    ours = model_of(checkpoint, sizes_of(checkpoint, CAPACITY))
    path = tmp_path / "model.onnx"
    onnx.save(step_model(ours, kernels, CAPACITY, positions=CAPACITY), path)
    stepper = Stepper(path, rows=2, capacity=CAPACITY, context={})
    prompts = list(map(list, PROMPTS))
    said = stepper.greedy(prompts, end=-1, limit=LIMIT, chunk=3)
    assert said == [greedy(theirs, prompt) for prompt in prompts]
    (found,) = stepper.run([prompts[0]], [0])
    np.testing.assert_allclose(found, expected(theirs, prompts[0])[-1], atol=CLOSE)


def test_shards_and_half_precision_are_read(tmp_path: Path) -> None:
    write_llm(tmp_path / "one", "llama", dtype=torch.bfloat16)
    write_llm(tmp_path / "many", "llama", shard="40KB", dtype=torch.bfloat16)
    one, many = (Checkpoint(tmp_path / name) for name in ("one", "many"))
    assert (len(one.files), len(many.files) > 1) == (1, True)
    assert one.config["dtype"] == "bfloat16"
    states = [model_of(each, sizes_of(each, CAPACITY)).state_dict() for each in (one, many)]
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, atol=0, rtol=0)


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def untemplated(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{}")


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (without("config.json"), r"has no config\.json"),
        (without("tokenizer.json"), r"has no tokenizer\.json; write one"),
        (without("model.safetensors"), r"neither model\.safetensors nor"),
        (pickled, "pickled weights, which may run code"),
        (cut, "damaged or cut short"),
        (untemplated, "no chat template .* Give one with --template"),
        (
            lambda folder: change(folder, architectures=["GemmaForCausalLM"]),
            "a GemmaForCausalLM; .*Qwen3ForCausalLM",
        ),
        (lambda folder: change(folder, hidden_act="gelu"), "'gelu' is not silu"),
        (lambda folder: change(folder, head_dim=12), "heads of 12 channels; a multiple of 8"),
        (lambda folder: change(folder, quantization_config={"bits": 4}), "quantised already"),
        (lambda folder: change(folder, hidden_size=None), "hidden_size is None, not a number"),
        (lambda folder: change(folder, hidden_size=128), r"is \[\d+, 64\], not \[\d+, 128\]"),
        (lambda folder: change(folder, num_hidden_layers=4), "is missing"),
        (lambda folder: change(folder, num_hidden_layers=2), "is not known"),
        (
            lambda folder: change(folder, max_position_embeddings=64),
            "knows 64 positions.*--capacity",
        ),
        (
            lambda folder: change(folder, rope_parameters={"rope_type": "longrope"}),
            "'longrope' is not supported; known: default",
        ),
        (
            lambda folder: change(folder, partial_rotary_factor=0.5),
            "part of a head is not supported",
        ),
        (lambda folder: (folder / "config.json").write_text("{"), "is not JSON"),
    ],
)
def test_what_cannot_be_built_is_told_and_nothing_is_left(
    tmp_path: Path, harm: Callable[[Path], object], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, into = tmp_path / "checkpoint", tmp_path / "own"
    write_llm(source, "llama")
    harm(source)
    asked = ["think", "--from", str(source), "--into", str(into), "--capacity", str(CAPACITY)]
    assert main([*asked, "--max-new-tokens", "16"]) == 1
    error = capsys.readouterr().err
    assert "\nCheckpointUnfit: " in f"\n{error}"
    assert re.search(told, error), error
    assert not into.exists()


def test_a_window_that_slides_is_refused_unless_it_is_never_left(tmp_path: Path) -> None:
    write_llm(tmp_path, "mistral", sliding_window=64)
    checkpoint = Checkpoint(tmp_path)
    with pytest.raises(CheckpointUnfit, match=r"sliding window of 64 .*--capacity 64"):
        sizes_of(checkpoint, CAPACITY)
    assert sizes_of(checkpoint, 64).layers == 3


def test_the_ends_of_an_answer_are_those_of_the_generation_settings(tmp_path: Path) -> None:
    write_llm(tmp_path, "llama")
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert ends_of(Checkpoint(tmp_path)) == [7, 9]
    (tmp_path / "generation_config.json").unlink()
    change(tmp_path, eos_token_id=11)
    assert ends_of(Checkpoint(tmp_path)) == [11]
    change(tmp_path, eos_token_id=None)
    with pytest.raises(CheckpointUnfit, match="has eos_token_id: nothing would end"):
        ends_of(Checkpoint(tmp_path))


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_the_command_makes_models_that_stand_in_for_ours(tmp_path: Path, precision: str) -> None:
    source, into = tmp_path / "checkpoint", tmp_path / "own"
    write_llm(source, "qwen3")
    asked = ["think", "--from", str(source), "--into", str(into), "--capacity", str(CAPACITY)]
    asked += ["--max-new-tokens", "16", "--precision", precision]
    assert main(asked) == 0
    with pytest.raises(RepositoryError, match="two models are named"):
        read_models([*REPOSITORIES, into], {})
    models = read_models(REPOSITORIES, {}, own=[into])
    think, step = models["think"], models["think_step"]
    assert (think.folder, step.folder) == (into / "think", into / "think_step")
    assert think.parameters["prompt"] == "chat"
    assert think.parameters["capacity"] == step.parameters["capacity"] == str(CAPACITY)
    assert think.parameters["bytes_kv_token"] == str(2 * 3 * 2 * 32 * 4)
    assert models["turn"].folder.parent == REPOSITORIES[0]
    assert "think" in to_load(models, ["turn"])
    files = {path.name for path in step.version_folder.iterdir()}
    assert files == {"model.onnx", "generation.json", "sampler.onnx"}
    made_of = json.loads((into / "think.json").read_text())
    assert made_of["precision"] == precision
    assert str(source / "model.safetensors") in made_of["sources"]
    assert main(asked) == 0, "it can be made again"


def test_the_folder_of_our_own_models_is_not_written_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["think", "--from", str(tmp_path), "--into", str(REPOSITORIES[0])]) == 1
    assert "choose another folder with --into" in capsys.readouterr().err
