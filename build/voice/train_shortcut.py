"""Teaches the flow decoder to arrive in one, two or four steps where eight would take it.

A copy of the trained decoder goes the whole way from noise to speech in fine steps. Of each such
path the decoder learns the mean velocity between points that lie a stride apart, and is told the
stride: with solver `shortcut` one Euler step along it is the whole stride. Telling a flow its
stride is from shortcut models (Frans et al. 2024, arXiv:2410.12557); learning from the paths of a
finished flow, from progressive distillation (Salimans and Ho 2022, arXiv:2202.00512). Beside it the
velocity itself is still learnt, so that the other solvers stay what they are.
"""

import copy
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from build.voice.corpus import Corpus
from build.voice.flow_decoder import FlowDecoder
from build.voice.train_flow import (
    Crops,
    FlowLoss,
    flow_error,
    held_out_loss,
    loss_weights,
    weighted_error,
)
from build.voice.training import History, Recipe, Trainer, hash_of_code
from python_backends.diffusion_lock.solver import SHORTCUT, SHORTCUT_STEPS, stride

STEPS: Final = 1200

_BATCH: Final = 4
_CROP_FRAMES: Final = 160
_FINE_STEPS: Final = 8
_VALIDATION_CROPS: Final = 8


def train_shortcut(
    corpus: Corpus, flow: FlowDecoder, steps: int = STEPS
) -> tuple[FlowDecoder, History]:
    """`flow`, able to take shortcuts; continues from its checkpoint."""
    recipe = Recipe(
        "shortcut",
        corpus.fingerprint,
        hash_of_code(train_shortcut),
        steps,
        learning_rate=3e-4,
        warmup_steps=50,
        weight_decay=0.01,
        betas=(0.9, 0.98),
        hurried=("condition.stride.weight",),
    )
    teacher = copy.deepcopy(flow).eval().requires_grad_(False)
    model = copy.deepcopy(flow).train().requires_grad_(True)
    weight = loss_weights(corpus)

    def validate(average: nn.Module) -> dict[str, float]:
        assert isinstance(average, FlowDecoder)
        flown = held_out_loss(FlowLoss(average, corpus.held_out, weight))
        return {"held_out": flown, **distances(teacher, average, corpus, weight)}

    trainer = Trainer(recipe, model, validate)
    trained = trainer.run(ShortcutLoss(teacher, model, corpus, weight))
    assert isinstance(trained, FlowDecoder)
    return trained, trainer.history


class ShortcutLoss:
    """Mean squared error of the velocity, and of the mean velocity over each stride."""

    def __init__(
        self, teacher: FlowDecoder, model: FlowDecoder, corpus: Corpus, weight: Tensor
    ) -> None:
        self._teacher = teacher
        self._model = model
        self._utterances = corpus.training
        self._weight = weight

    def __call__(self, rng: np.random.Generator) -> Tensor:
        crops = Crops.drawn(self._utterances, rng, _BATCH, _CROP_FRAMES)
        with torch.autocast("cpu", torch.bfloat16):
            path = fine_path(self._teacher, crops, torch.randn_like(crops.speech.values))
            time = torch.sigmoid(torch.randn(_BATCH, 1))
            loss = flow_error(self._model, crops, time, self._weight)
            for steps in SHORTCUT_STEPS:
                loss = loss + self._error(crops, path, steps, int(rng.integers(steps)))
        return loss

    def _error(self, crops: Crops, path: list[Tensor], steps: int, part: int) -> Tensor:
        """Of the mean velocity over one of `steps` equal parts of the path."""
        points = _FINE_STEPS // steps
        here, there = path[part * points], path[(part + 1) * points]
        condition = crops.condition(self._model, stride(SHORTCUT, steps))
        time = torch.full((len(here), 1), part / steps)
        found = self._model(here, time, condition, crops.speech.lengths)
        return weighted_error(found, (there - here) * steps, crops.speech, self._weight)


@torch.no_grad()
def fine_path(flow: FlowDecoder, crops: Crops, noise: Tensor) -> list[Tensor]:
    """States [B, T, CHANNELS] at times 0, 1 / _FINE_STEPS, ..., 1 of Euler's method."""
    condition, path = crops.condition(flow), [noise]
    for step in range(_FINE_STEPS):
        time = torch.full((len(noise), 1), step / _FINE_STEPS)
        velocity = flow(path[-1], time, condition, crops.speech.lengths).float()
        path.append(path[-1] + velocity / _FINE_STEPS)
    return path


def distances(
    teacher: FlowDecoder, model: FlowDecoder, corpus: Corpus, weight: Tensor
) -> dict[str, float]:
    """How far from the end of the fine path each number of steps ends, with shortcuts and without:
    mean squared, on held-out crops."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    crops = Crops.drawn(corpus.held_out, rng, _VALIDATION_CROPS, _CROP_FRAMES)
    noise = torch.randn_like(crops.speech.values)
    end = fine_path(teacher, crops, noise)[-1]
    found = {}
    for steps in SHORTCUT_STEPS:
        for name, kind in (("shortcut", stride(SHORTCUT, steps)), ("euler", 0)):
            reached = model.sample(noise, crops.condition(model, kind), crops.speech.lengths, steps)
            error = weighted_error(reached, end, crops.speech, weight)
            found[f"{name}_{steps}"] = error.item()
    return found
