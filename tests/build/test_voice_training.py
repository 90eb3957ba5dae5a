"""The training loop, on models and data of a few numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from build.fetch import CACHE_VARIABLE
from build.lineage import code_of
from build.voice import train_flow, train_prosody, train_shortcut
from build.voice.batches import stack_padded
from build.voice.corpus import HELD_OUT, Corpus, Utterance
from build.voice.flow_decoder import FlowDecoder
from build.voice.latents import Basis
from build.voice.prosody_lm import ProsodyLM
from build.voice.train_flow import FlowLoss, loss_weights
from build.voice.train_prosody import cross_entropies
from build.voice.train_shortcut import ShortcutLoss
from build.voice.training import HURRY, Recipe, Trainer, hash_of_code
from python_backends.speech import CHANNELS, LATENT

TRAININGS = {
    "prosody": train_prosody.train_prosody,
    "flow": train_flow.train_flow,
    "shortcut": train_shortcut.train_shortcut,
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    return tmp_path


def recipe(steps: int) -> Recipe:
    return Recipe(
        "line", "data", "code", steps, learning_rate=0.1, warmup_steps=2, weight_decay=0.0
    )


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "voice").glob("*.checkpoint.pt"))


class Line:
    """Fits y = 3x - 1 with noise; may be interrupted at a step."""

    def __init__(self, stop_after: int = 10**9, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = nn.Linear(1, 1)
        self._left = stop_after

    def __call__(self, rng: np.random.Generator) -> Tensor:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        x = torch.from_numpy(rng.standard_normal((8, 1), np.float32))
        error = self.model(x) - (3 * x - 1) + 0.01 * torch.randn(8, 1)
        return error.square().mean()


def test_training_fits_and_returns_the_averaged_model(cache: Path) -> None:
    line = Line()
    fitted = Trainer(recipe(300), line.model).run(line)
    assert isinstance(fitted, nn.Linear)
    assert fitted is not line.model
    assert fitted.weight.item() == pytest.approx(3, abs=0.05)
    assert fitted.bias.item() == pytest.approx(-1, abs=0.05)


def test_an_interrupted_training_goes_on_to_the_same_weights(cache: Path, tmp_path: Path) -> None:
    whole = Line()
    expected = Trainer(recipe(300), whole.model).run(whole).state_dict()
    checkpoints(tmp_path)[0].unlink()
    stopped = Line(stop_after=260)
    with pytest.raises(KeyboardInterrupt):
        Trainer(recipe(300), stopped.model).run(stopped)
    resumed = Line(stop_after=50)
    found = Trainer(recipe(300), resumed.model).run(resumed).state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_hurried_parameter_moves_faster(cache: Path) -> None:
    """Adam's first step is the learning rate, whatever the gradient."""
    line = Line()
    before = {name: one.item() for name, one in line.model.named_parameters()}
    Trainer(replace(recipe(1), hurried=("bias",)), line.model).run(line)
    moved = {name: abs(one.item() - before[name]) for name, one in line.model.named_parameters()}
    assert moved["bias"] == pytest.approx(HURRY * moved["weight"], rel=1e-3)


def test_who_is_to_hurry_must_be_there(cache: Path) -> None:
    with pytest.raises(ValueError, match=r"line has no parameters \['byas'\] to hurry"):
        Trainer(replace(recipe(1), hurried=("bias", "byas")), Line().model)


@pytest.mark.parametrize(
    ("another", "seed"),
    [
        (recipe(11), 0),
        (replace(recipe(10), data="other data"), 0),
        (replace(recipe(10), code="other code"), 0),
        (recipe(10), 1),
    ],
    ids=["recipe", "data", "code", "start weights"],
)
def test_a_checkpoint_of_another_recipe_data_code_or_start_is_not_taken_up(
    cache: Path, another: Recipe, seed: int
) -> None:
    """Nor lost: each finds its own again."""
    line, other, stopped = Line(), Line(seed=seed), Line(stop_after=another.steps - 1, seed=seed)
    expected = Trainer(recipe(10), line.model).run(line).state_dict()
    with pytest.raises(KeyboardInterrupt):
        Trainer(another, stopped.model).run(stopped)
    Trainer(another, other.model).run(other)
    assert len(checkpoints(cache)) == 2
    again = Line(stop_after=0)
    found = Trainer(recipe(10), again.model).run(again).state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_what_is_trained_is_known_by_the_code_behind_it() -> None:
    files = {name: code_of(function) for name, function in TRAININGS.items()}
    names = {name: {path.name for path in paths} for name, paths in files.items()}
    assert names["prosody"] >= {"prosody_lm.py", "layers.py", "training.py", "speech.py"}
    assert names["shortcut"] >= {"train_flow.py", "flow_decoder.py", "solver.py", "frames.py"}
    assert len({hash_of_code(function) for function in TRAININGS.values()}) == len(TRAININGS)


def corpus() -> Corpus:
    rng = np.random.default_rng(0)
    utterances = []
    for count in range(3, 6 + HELD_OUT):
        ticks = rng.integers(1, 5, count)
        acoustic = rng.standard_normal((2 * int(ticks.sum()), CHANNELS)).astype(np.float16)
        phonemes, pitch = rng.integers(0, 178, count), rng.integers(0, 33, count)
        utterances.append(Utterance(str(count), count % 2, phonemes, ticks, pitch, acoustic))
    basis = Basis(np.zeros(1), np.zeros(1), np.ones(LATENT, np.float32), 1.0)
    return Corpus(utterances, basis, "")


def awake() -> FlowDecoder:
    """A flow decoder none of whose layers are zero."""
    torch.manual_seed(0)
    model = FlowDecoder()
    nn.init.normal_(model.leave.weight, std=0.1)
    for block in model.blocks:
        nn.init.normal_(block.modulate.weight, std=0.1)
    return model


def test_the_flow_loss_reaches_every_weight() -> None:
    model, data = awake(), corpus()
    FlowLoss(model, data.training, loss_weights(data))(np.random.default_rng(0)).backward()
    untouched = [name for name, p in model.named_parameters() if p.grad is None]
    assert untouched == []
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_the_shortcut_loss_tells_every_stride_and_leaves_its_teacher_alone() -> None:
    model, teacher, data = awake(), awake(), corpus()
    loss = ShortcutLoss(teacher, model, data, loss_weights(data))
    loss(np.random.default_rng(0)).backward()
    assert model.condition.stride.weight.grad.abs().sum(1).all()
    assert all(p.grad is None for p in teacher.parameters())


def test_a_validation_changes_no_training(cache: Path, tmp_path: Path) -> None:
    def validate(model: nn.Module) -> dict[str, float]:
        torch.randn(7)
        return {"weight": model.weight.item()}

    plain, watched = Line(), Line()
    expected = Trainer(recipe(300), plain.model).run(plain).state_dict()
    checkpoints(tmp_path)[0].unlink()
    trainer = Trainer(recipe(300), watched.model, validate)
    found = trainer.run(watched).state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert [one["step"] for one in trainer.history] == [0, 250, 300]
    assert trainer.history[-1]["weight"] == pytest.approx(3, abs=0.05)
    again = Trainer(recipe(300), Line().model, validate)
    again.run(Line(stop_after=0))
    assert again.history == trainer.history


def test_the_prosody_loss_of_a_row_does_not_depend_on_its_batch() -> None:
    torch.manual_seed(0)
    model, rows = ProsodyLM().eval(), corpus().utterances[:3]
    alone = [cross_entropies(model, [row])[0].item() for row in rows]
    lengths = [len(row.phonemes) for row in rows]
    together = cross_entropies(model, rows)[0].item()
    assert together == pytest.approx(np.average(alone, weights=lengths), abs=1e-4)


def test_rows_are_padded_to_the_longest() -> None:
    padded = stack_padded([np.array([1, 2, 3]), np.array([4])], -1)
    assert padded.values.tolist() == [[1, 2, 3], [4, -1, -1]]
    assert padded.mask.tolist() == [[1, 1, 1], [1, 0, 0]]
