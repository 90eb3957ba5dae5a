"""Checkpoints that users bring for ASR, against transformers."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from build.__main__ import main
from build.errors import CheckpointUnfit, ContractBroken
from build.own import asr
from build.own.checkpoint import Checkpoint
from build.own.whisper import generation_of, models_of, sizes_of
from build.step_graph import FusedKernels, PortableKernels, StepGraph
from build.whisper import graph
from deploy.repositories import read_models, to_load
from deploy.settings import REPOSITORIES
from python_backends.ar_loop.settings import LoopSettings
from python_backends.ar_loop.tasks.transcribe import Transcribe
from python_backends.bridge import ModelConfig
from python_backends.encoder_window.settings import EncodeSettings
from tests.build.greedy import REPOSITORY, Context, Stepper, open_graph
from tests.build.own_checkpoints import change, pickled, without
from tests.build.own_whispers import (
    KINDS,
    LANGUAGES,
    PADDING,
    SIZES,
    TIMES,
    as_checkpoint,
    write_whisper,
)

CLOSE = 1e-3
LIMIT = 20
FRAMES = 3000
MODELS = ("asr_encoder", "encode", "asr_decode", "asr_decode_step")
PROMPTS = {
    "english": ["<|startoftranscript|>", "<|notimestamps|>"],
    "multilingual": ["<|startoftranscript|>", "<|de|>", "<|transcribe|>", "<|notimestamps|>"],
}
SPOKEN: dict[str, str | None] = {"english": None, "multilingual": "de"}


class Brought:
    """A checkpoint of one kind: transformers' model, and ours."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        self.theirs = write_whisper(folder, kind)
        self.ours = asr.Whisper.read(Checkpoint(folder), SPOKEN[kind])
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        mels = self.ours.sizes.mels
        rng = np.random.default_rng(mels)
        noise = rng.standard_normal((2, mels, FRAMES)) + rng.standard_normal((2, mels, 1))
        self.mel: NDArray[np.float32] = noise.astype(np.float32)

    @property
    def prompt(self) -> list[int]:
        found: list[int] = self.ours.generation["prompt"]
        return found

    def hidden(self) -> Any:
        """What transformers' encoder makes of the mels, [2, 1500, width]."""
        with torch.no_grad():
            return self.theirs.model.encoder(torch.from_numpy(self.mel)).last_hidden_state

    def logits(self, ids: list[int]) -> Any:
        """Of transformers behind each token, for the first mel: [T, V]."""
        with torch.no_grad():
            found = self.theirs(torch.from_numpy(self.mel[:1]), decoder_input_ids=as_ids(ids))
        return found.logits[0].numpy()

    def said(self) -> list[list[int]]:
        """What transformers' generate says to each mel, the end left out."""
        language = {"language": "de", "task": "transcribe"} if SPOKEN[self.kind] else {}
        rows = self.theirs.generate(
            torch.from_numpy(self.mel), max_new_tokens=LIMIT, do_sample=False, **language
        )
        end = self.ours.generation["end"]
        found = [row.tolist() for row in rows]
        return [row[: row.index(end)] if end in row else row for row in found]


def as_ids(ids: list[int]) -> torch.Tensor:
    return torch.tensor([ids])


@pytest.fixture(scope="module", params=KINDS)
def brought(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Brought:
    return Brought(tmp_path_factory.mktemp("checkpoint"), request.param)


def admitted(brought: Brought, folder: Path) -> Context:
    """Cross pools of the encoder states of both mels."""
    path = folder / "admit.onnx"
    graph.export_admission(brought.ours.decoder, path)
    session = open_graph(path)
    names = [node.name for node in session.get_outputs()]
    hidden = brought.hidden().numpy()
    pools = dict(zip(names, session.run(names, {"HIDDEN": hidden}), strict=True))
    return pools | {"clen": np.full(len(hidden), hidden.shape[1], np.int64)}


def test_the_encoder_graph_gives_the_states_of_transformers(
    brought: Brought, tmp_path: Path
) -> None:
    graph.export_encoder(brought.ours.encoder, tmp_path / "model.onnx")
    session = open_graph(tmp_path / "model.onnx")
    (found,) = session.run(["HIDDEN"], {"MEL": brought.mel})
    np.testing.assert_allclose(found, brought.hidden().numpy(), atol=CLOSE)


@pytest.mark.parametrize("kernels", [FusedKernels, PortableKernels])
def test_step_graphs_give_the_logits_of_transformers(
    brought: Brought, kernels: type[StepGraph], tmp_path: Path
) -> None:
    onnx.save(graph.step_model(brought.ours.decoder, kernels), tmp_path / "model.onnx")
    capacity = brought.ours.sizes.decoder_context
    context = admitted(brought, tmp_path)
    stepper = Stepper(tmp_path / "model.onnx", rows=2, capacity=capacity, context=context)
    ids = [*brought.prompt, 5, 80, 11, 200]
    expected = brought.logits(ids)
    (first,) = stepper.run([ids[:-2]], [0])
    np.testing.assert_allclose(first, expected[-3], atol=CLOSE)
    (second,) = stepper.run([ids[-2:]], [len(ids) - 2])
    np.testing.assert_allclose(second, expected[-1], atol=CLOSE)


@pytest.mark.parametrize("kernels", [FusedKernels, PortableKernels])
def test_step_graphs_say_what_transformers_generates(
    brought: Brought, kernels: type[StepGraph], tmp_path: Path
) -> None:
    """With the tokens that its generation settings never let be chosen, or not first."""
    onnx.save(graph.step_model(brought.ours.decoder, kernels), tmp_path / "model.onnx")
    rules, capacity = brought.ours.generation, brought.ours.sizes.decoder_context
    context = admitted(brought, tmp_path)
    stepper = Stepper(tmp_path / "model.onnx", rows=2, capacity=capacity, context=context)
    rows = [list(brought.prompt) for _ in range(2)]
    for count in range(LIMIT):
        tokens = [row[-1:] if count else row for row in rows]
        logits = stepper.run(tokens, [len(row) - len(tokens[0]) for row in rows])
        logits[:, rules["suppress"]] = -np.inf
        if not count:
            logits[:, rules["suppress_first"]] = -np.inf
        for row, token in zip(rows, logits.argmax(1).tolist(), strict=True):
            row.append(token)
    ours = [row[len(brought.prompt) :] for row in rows]
    ours = [row[: row.index(rules["end"])] if rules["end"] in row else row for row in ours]
    assert ours == brought.said()
    assert len({tuple(row) for row in ours}) == 2


def test_the_prompt_and_the_rest_of_the_settings_are_those_of_the_checkpoint(
    brought: Brought,
) -> None:
    rules, of = brought.ours.generation, brought.tokenizer.token_to_id
    assert brought.prompt == [of(token) for token in PROMPTS[brought.kind]]
    silence = "<|nospeech|>" if brought.kind == "multilingual" else "<|nocaptions|>"
    assert (rules["no_speech"], rules["end"]) == (of(silence), of("<|endoftext|>"))
    assert rules["suppress_first"] == [2, of("<|endoftext|>")]
    assert rules["context_widths"] == [750, 1500]
    assert brought.ours.max_new_tokens == SIZES["max_target_positions"] - len(brought.prompt) + 1


def test_what_is_no_text_is_never_chosen(tmp_path: Path) -> None:
    """Times, and ids that have no token; of older checkpoints config.json has the lists."""
    write_whisper(tmp_path, "english")
    (tmp_path / "generation_config.json").unlink()
    change(tmp_path, suppress_tokens=[7, 9], begin_suppress_tokens=[3])
    checkpoint = Checkpoint(tmp_path)
    tokenizer = Tokenizer.from_file(str(checkpoint.tokenizer))
    rules = generation_of(checkpoint, sizes_of(checkpoint), tokenizer, None)
    known = tokenizer.get_vocab_size()
    assert rules["suppress"] == [7, 9, *range(known - len(TIMES), known + PADDING)]
    assert rules["suppress_first"] == [3]


def test_shards_and_half_precision_are_read(tmp_path: Path) -> None:
    theirs = write_whisper(tmp_path / "one", "english", dtype=torch.bfloat16)
    write_whisper(tmp_path / "many", "english", shard="50KB", dtype=torch.bfloat16)
    one, many = (Checkpoint(tmp_path / name) for name in ("one", "many"))
    assert (len(one.files), len(many.files) > 1) == (1, True)
    for ours, other in zip(*(models_of(each, sizes_of(each)) for each in (one, many)), strict=True):
        for name, value in ours.state_dict().items():
            torch.testing.assert_close(other.state_dict()[name], value, atol=0, rtol=0)
    encoder, _ = models_of(one, sizes_of(one))
    first = theirs.model.encoder.conv1.weight
    assert first.dtype == torch.bfloat16
    torch.testing.assert_close(encoder.conv1.weight, first.float(), atol=0, rtol=0)


def test_tiny_en_brought_in_this_way_gives_the_artefacts_that_we_ship(tmp_path: Path) -> None:
    """Real weights, byte for byte; times may not be chosen, which ours may."""
    source, into = tmp_path / "checkpoint", tmp_path / "own"
    as_checkpoint(source)
    assert main(["asr", "--from", str(source), "--into", str(into)]) == 0
    for name in ("asr_encoder/1/model.onnx", "asr_decode_step/1/model.onnx"):
        assert (into / name).read_bytes() == (REPOSITORY / name).read_bytes(), name
    admit = "asr_decode_step/1/admit.onnx"
    assert (into / admit).read_bytes() == (REPOSITORY / admit).read_bytes()
    rules, ours = (
        json.loads((folder / "asr_decode_step/1/generation.json").read_text())
        for folder in (into, REPOSITORY)
    )
    assert set(ours.pop("suppress")) <= set(rules.pop("suppress"))
    assert sorted(ours.pop("suppress_first")) == rules.pop("suppress_first")
    assert rules == ours


def of_another(folder: Path) -> None:
    """A tokenizer without the tokens of a Whisper."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = []
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (without("config.json"), r"has no config\.json"),
        (without("tokenizer.json"), r"has no tokenizer\.json; write one"),
        (without("model.safetensors"), r"neither model\.safetensors nor"),
        (pickled, "pickled weights, which may run code"),
        (of_another, r"has no token <\|nospeech\|> or <\|nocaptions\|>"),
        (
            lambda folder: change(folder, architectures=["Wav2Vec2ForCTC"]),
            "is a Wav2Vec2ForCTC; asr is built of WhisperForConditionalGeneration",
        ),
        (lambda folder: change(folder, activation_function="relu"), "'relu' is not gelu"),
        (lambda folder: change(folder, tie_word_embeddings=False), "a head apart from"),
        (lambda folder: change(folder, max_source_positions=750), "750 positions; 1500"),
        (lambda folder: change(folder, decoder_attention_heads=2), "is 4 and .* 2; equal"),
        (lambda folder: change(folder, decoder_ffn_dim=48), "is 96 and .* 48; equal"),
        (lambda folder: change(folder, d_model=100), "4 heads in 100 channels; .* 8"),
        (lambda folder: change(folder, d_model=128), r"is \[.*64\], not \[.*128"),
        (lambda folder: change(folder, encoder_layers=4), "is missing"),
        (lambda folder: change(folder, encoder_layers=1), "is not known"),
        (lambda folder: change(folder, num_mel_bins=None), "num_mel_bins is None"),
        (
            lambda folder: change(folder, "preprocessor_config.json", hop_length=200),
            "hop_length is 200; 160 is supported",
        ),
        (
            lambda folder: change(folder, "generation_config.json", suppress_tokens=[5000]),
            r"suppress_tokens is \[5000\], not ids below",
        ),
        (
            lambda folder: change(folder, "generation_config.json", begin_suppress_tokens=220),
            "begin_suppress_tokens is 220, not ids below",
        ),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "cannot be read"),
    ],
)
def test_what_cannot_be_built_is_told_and_nothing_is_left(
    tmp_path: Path, harm: Callable[[Path], object], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, into = tmp_path / "checkpoint", tmp_path / "own"
    write_whisper(source, "multilingual")
    harm(source)
    assert main(["asr", "--from", str(source), "--into", str(into)]) == 1
    error = capsys.readouterr().err
    assert "\nCheckpointUnfit: " in f"\n{error}"
    assert re.search(told, error), error
    assert not into.exists()


def test_a_language_is_one_that_the_model_knows(tmp_path: Path) -> None:
    write_whisper(tmp_path, "multilingual")
    checkpoint = Checkpoint(tmp_path)
    tokenizer = Tokenizer.from_file(str(checkpoint.tokenizer))
    sizes = sizes_of(checkpoint)

    def heard(language: str | None) -> str | None:
        return tokenizer.id_to_token(
            generation_of(checkpoint, sizes, tokenizer, language)["prompt"][1]
        )

    assert [heard(code) for code in LANGUAGES] == [f"<|{code}|>" for code in LANGUAGES]
    assert (heard(None), heard("FR")) == ("<|en|>", "<|fr|>")
    with pytest.raises(CheckpointUnfit, match=r"no language 'es'; .* one of de, en, fr, yue"):
        heard("es")
    change(tmp_path, "generation_config.json", lang_to_id=None)
    checkpoint = Checkpoint(tmp_path)
    assert heard("yue") == "<|yue|>"


def test_an_english_only_model_takes_no_language(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_whisper(tmp_path, "english")
    asked = ["asr", "--from", str(tmp_path), "--into", str(tmp_path / "own"), "--language", "de"]
    assert main(asked) == 1
    assert "an English-only model: it takes no --language" in capsys.readouterr().err


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_the_command_makes_models_that_stand_in_for_ours(tmp_path: Path, precision: str) -> None:
    source, into = tmp_path / "checkpoint", tmp_path / "own"
    write_whisper(source, "multilingual")
    asked = ["asr", "--from", str(source), "--into", str(into), "--language", "fr"]
    asked += ["--precision", precision, "--slots", "3"]
    assert main(asked) == 0
    models = read_models(REPOSITORIES, {}, own=[into])
    assert {models[name].folder for name in MODELS} == {into / name for name in MODELS}
    assert set(MODELS) <= set(to_load(models, ["transcribe", "asr_decode_step"]))
    encode, loop, step = (models[name].parameters for name in MODELS[1:])
    assert (encode["mels"], encode["width"]) == ("128", "64")
    assert loop["slots"] == step["slots"] == "3"
    assert loop["capacity"] == step["capacity"] == "64"
    assert loop["bytes_kv_token"] == str(2 * 1 * 64 * 4)
    assert step["bytes_kv_row"] == str(2 * 1 * 64 * 4 * 2250)
    assert int(encode["max_batch_bytes"]) > 0
    loaded = config_of("encode", into, encode).settings(EncodeSettings)
    assert (loaded.mels, loaded.width) == (128, 64)
    settings = config_of("asr_decode", into, loop).settings(LoopSettings)
    task = Transcribe.load(config_of("asr_decode", into, loop), settings, pytest.fail)
    assert len(task.prompt) == 4
    assert settings.max_new_tokens == 61
    made_of = json.loads((into / "asr.json").read_text())
    assert made_of["precision"] == precision
    assert made_of["states_off"] <= asr.STATES_OFF[precision]
    assert str(source / "model.safetensors") in made_of["sources"]
    assert not list(into.glob(".trial*"))
    assert main(asked) == 0, "it can be made again"


def config_of(name: str, repository: Path, parameters: dict[str, str]) -> ModelConfig:
    """As the backend of that model is given it."""
    return ModelConfig(name, repository, "1", parameters, ())


def test_a_graph_that_computes_something_else_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, into = tmp_path / "checkpoint", tmp_path / "own"
    write_whisper(source, "english")
    monkeypatch.setattr(asr, "STATES_OFF", {"int8": 1e-6})
    assert main(["asr", "--from", str(source), "--into", str(into)]) == 1
    error = capsys.readouterr().err
    assert f"{ContractBroken.__name__}: the graphs are too far off PyTorch: states_off" in error
    assert "--precision fp32" in error
    assert list(into.iterdir()) == []
