"""The loop all three trainers share: seeded, a fixed number of steps, resumable."""

import copy
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from build.fetch import replacing
from build.lineage import code_of
from build.voice.corpus import cache_folder

_CHECKPOINT_STEPS: Final = 250
_CLIP: Final = 1.0
_LARGEST_DECAY: Final = 0.995
_SMOOTHING: Final = 0.02

HURRY: Final = 40.0
"""Adam moves a weight by about the learning rate a step. At the 3e-4 that is gentle with trained
weights, one that begins at zero would need 3,000 steps to become as large as its neighbours, about
1, and a training has fewer; so it needs 80. Not tuned."""


@dataclass(frozen=True)
class Recipe:
    """How a model is trained."""

    name: str
    data: str
    """Fingerprint of the corpus."""
    code: str
    """Of what computes the loss, see `hash_of_code`."""
    steps: int
    learning_rate: float
    warmup_steps: int
    weight_decay: float
    betas: tuple[float, float] = (0.9, 0.999)
    seed: int = 0
    hurried: tuple[str, ...] = ()
    """Parameters that learn HURRY times as fast: new ones among those that are trained."""

    def rate(self, step: int) -> float:
        """Linear warm-up, then half a cosine down to zero at the last step."""
        warm = min(1.0, (step + 1) / self.warmup_steps)
        return self.learning_rate * warm * (0.5 + 0.5 * math.cos(math.pi * step / self.steps))


def hash_of_code(train: Callable[..., Any]) -> str:
    """Of the file of a function and all files of ours that it depends on."""
    digest = hashlib.sha256()
    for path in code_of(train):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def hash_of_weights(model: nn.Module) -> str:
    """Of names and values of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


LossOfBatch = Callable[[np.random.Generator], Tensor]
"""Draws a batch from the generator and returns its mean loss."""

Validation = Callable[[nn.Module], dict[str, float]]
"""Losses of a model on data that it was not trained on."""

History = list[dict[str, float]]
"""By step: the smoothed training loss, and what the validation found."""


class Trainer:
    """Trains `model` with AdamW and keeps an exponential moving average of its weights.

    A checkpoint in the cache folder lets a run that was stopped go on where it was, to the same
    result; `run` on a finished one returns at once. It is one of the recipe and of the weights
    that `model` began with: another recipe, corpus, code or start has a checkpoint of its own.

    ValueError for hurried parameters that the model does not have.
    """

    def __init__(
        self, recipe: Recipe, model: nn.Module, validate: Validation | None = None
    ) -> None:
        strangers = set(recipe.hurried) - {name for name, _ in model.named_parameters()}
        if strangers:
            raise ValueError(f"{recipe.name} has no parameters {sorted(strangers)} to hurry")
        self.recipe = recipe
        self.model = model
        self.average = copy.deepcopy(model)
        self.step = 0
        self.history: History = []
        self._validate = validate
        self._loss = 0.0
        self._rng = np.random.default_rng(recipe.seed)
        self._optimiser = torch.optim.AdamW(
            [
                {"params": [parameter], "hurry": HURRY if name in recipe.hurried else 1.0}
                for name, parameter in model.named_parameters()
            ],
            lr=recipe.learning_rate,
            betas=recipe.betas,
            weight_decay=recipe.weight_decay,
        )
        key = f"{recipe!r} from {hash_of_weights(model)}"
        self._key = hashlib.sha256(key.encode()).hexdigest()
        self._path = cache_folder() / f"{recipe.name}-{self._key[:12]}.checkpoint.pt"

    def run(self, loss_of_batch: LossOfBatch) -> nn.Module:
        """Runs the remaining steps; returns the averaged model, in evaluation mode."""
        self._resume()
        bar = tqdm(total=self.recipe.steps, initial=self.step, desc=self.recipe.name, unit="step")
        self._look()
        while self.step < self.recipe.steps:
            loss = self._update(loss_of_batch)
            self._loss += (loss - self._loss) * max(_SMOOTHING, 1 / self.step)
            bar.set_postfix(loss=f"{self._loss:.4f}", refresh=False)
            bar.update()
            if self.step % _CHECKPOINT_STEPS == 0 or self.step == self.recipe.steps:
                self._look()
                self._save()
        bar.close()
        return self.average.eval()

    def _look(self) -> None:
        """Validates the averaged model; the training's own random draws stay what they were."""
        if self._validate is None or any(one["step"] == self.step for one in self.history):
            return
        with torch.random.fork_rng(), torch.inference_mode():
            found = self._validate(self.average)
        self.history.append({"step": self.step, "training": self._loss, **found})

    def _update(self, loss_of_batch: LossOfBatch) -> float:
        for group in self._optimiser.param_groups:
            group["lr"] = self.recipe.rate(self.step) * group["hurry"]
        loss = loss_of_batch(self._rng)
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), _CLIP)
        self._optimiser.step()
        self.step += 1
        self._follow()
        return loss.item()

    @torch.no_grad()
    def _follow(self) -> None:
        decay = min(_LARGEST_DECAY, self.step / (self.step + 19))
        pairs = zip(self.average.parameters(), self.model.parameters(), strict=True)
        for average, current in pairs:
            average.lerp_(current, 1 - decay)

    def _save(self) -> None:
        state = {
            "key": self._key,
            "step": self.step,
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "rng": self._rng.bit_generator.state,
            "torch_rng": torch.get_rng_state(),
            "history": self.history,
            "loss": self._loss,
        }
        with replacing(self._path) as partial:
            torch.save(state, partial)

    def _resume(self) -> None:
        """Takes up the checkpoint of the same recipe and start, if there is one."""
        torch.manual_seed(self.recipe.seed)
        if not self._path.exists():
            return
        state = torch.load(self._path, weights_only=True)
        if state["key"] != self._key:
            return
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._rng.bit_generator.state = state["rng"]
        torch.set_rng_state(state["torch_rng"])
        self.history, self._loss = state["history"], state["loss"]
