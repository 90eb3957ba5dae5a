"""Trains the flow decoder by optimal-transport conditional flow matching on crops of utterances."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from build.voice.batches import Padded, stack_padded
from build.voice.corpus import Corpus, Utterance
from build.voice.flow_decoder import PHONEME_REACH, FlowDecoder
from build.voice.training import History, Recipe, Trainer, hash_of_code
from python_backends.diffusion_lock.frames import frame_positions
from python_backends.speech import FRAMES_PER_TICK

STEPS: Final = 20_000
MORE_STEPS: Final = 1500
"""From weights that have been trained before."""

_BATCH: Final = 8
_CROP_FRAMES: Final = 256
_EXCITATION_WEIGHT: Final = 3.0
"""Weight of F0 and voicing in the loss; a latent weighs its standard deviation."""

_VALIDATION_BATCHES: Final = 6


def train_flow(
    corpus: Corpus, start: FlowDecoder | None = None, steps: int | None = None
) -> tuple[FlowDecoder, History]:
    """A flow decoder trained on the corpus, from `start` or from nothing; continues from its
    checkpoint."""
    recipe = Recipe(
        "flow_decoder",
        corpus.fingerprint,
        hash_of_code(train_flow),
        steps or (MORE_STEPS if start else STEPS),
        learning_rate=6e-4 if start else 2e-3,
        warmup_steps=100,
        weight_decay=0.01,
        betas=(0.9, 0.98),
    )
    torch.manual_seed(recipe.seed)
    model = start.train().requires_grad_(True) if start else FlowDecoder()
    weight = loss_weights(corpus)

    def validate(average: nn.Module) -> dict[str, float]:
        assert isinstance(average, FlowDecoder)
        return {"held_out": held_out_loss(FlowLoss(average, corpus.held_out, weight))}

    trainer = Trainer(recipe, model, validate)
    trained = trainer.run(FlowLoss(model, corpus.training, weight))
    assert isinstance(trained, FlowDecoder)
    return trained, trainer.history


def loss_weights(corpus: Corpus) -> Tensor:
    """float32 [CHANNELS], of mean 1."""
    weight = np.append(corpus.basis.scale, [_EXCITATION_WEIGHT] * 2)
    return torch.tensor(weight / weight.mean(), dtype=torch.float32)


def held_out_loss(loss: "FlowLoss") -> float:
    """The mean over always the same batches, times and noises."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    return float(np.mean([loss(rng).item() for _ in range(_VALIDATION_BATCHES)]))


class FlowLoss:
    """Mean squared error of the velocity on a random batch of crops."""

    def __init__(self, model: FlowDecoder, utterances: Sequence[Utterance], weight: Tensor) -> None:
        self._model = model
        self._utterances = utterances
        self._weight = weight

    def __call__(self, rng: np.random.Generator) -> Tensor:
        crops = Crops.drawn(self._utterances, rng, _BATCH, _CROP_FRAMES)
        time = torch.sigmoid(torch.randn(_BATCH, 1))
        with torch.autocast("cpu", torch.bfloat16):
            return flow_error(self._model, crops, time, self._weight)


def flow_error(model: FlowDecoder, crops: "Crops", time: Tensor, weight: Tensor) -> Tensor:
    """Mean squared error of the velocity of crops at times [B, 1]."""
    noise = torch.randn_like(crops.speech.values)
    state = torch.lerp(noise, crops.speech.values, time[..., None])
    velocity = model(state, time, crops.condition(model), crops.speech.lengths)
    return weighted_error(velocity, crops.speech.values - noise, crops.speech, weight)


def weighted_error(found: Tensor, target: Tensor, valid: Padded, weight: Tensor) -> Tensor:
    """Mean squared error of [B, T, CHANNELS] over valid frames, channels weighted."""
    error = (found.float() - target).square() * weight
    loss: Tensor = (error.mean(-1) * valid.mask).sum() / valid.mask.sum()
    return loss


class Crops:
    """A padded batch of crops."""

    def __init__(self, crops: Sequence["Crop"]) -> None:
        self.speech = stack_padded([c.acoustic for c in crops], 0)
        self._inputs = (
            stack_padded([c.phonemes for c in crops], 0).values,
            stack_padded([c.pitch for c in crops], -1).values,
            stack_padded([c.frame_phoneme for c in crops], 0).values,
            stack_padded([c.position for c in crops], 0).values,
            torch.tensor([[c.voice] for c in crops]),
        )

    @classmethod
    def drawn(
        cls, utterances: Sequence[Utterance], rng: np.random.Generator, count: int, frames: int
    ) -> "Crops":
        """`count` random crops of at most `frames` frames."""
        chosen = rng.integers(0, len(utterances), count)
        return cls([Crop(utterances[i], rng, frames) for i in chosen])

    def condition(self, model: FlowDecoder, stride: int = 0) -> Tensor:
        """[B, T, CONDITION] for a stride, see `solver.stride`."""
        voice = self._inputs[-1]
        condition: Tensor = model.condition(*self._inputs, torch.full_like(voice, stride))
        return condition


class Crop:
    """At most `frames` frames of an utterance, with the phonemes that influence them."""

    def __init__(self, utterance: Utterance, rng: np.random.Generator, frames: int) -> None:
        frame_phoneme, position = frame_positions(utterance.ticks * FRAMES_PER_TICK)
        start = int(rng.integers(0, max(1, len(frame_phoneme) - frames + 1)))
        cut = slice(start, start + frames)
        inside = frame_phoneme[cut]
        first = max(0, int(inside[0]) - PHONEME_REACH)
        phonemes = slice(first, int(inside[-1]) + PHONEME_REACH + 1)
        self.voice = utterance.voice
        self.phonemes = utterance.phonemes[phonemes]
        self.pitch = utterance.pitch[phonemes]
        self.frame_phoneme: NDArray[np.int64] = inside - first
        self.position = position[cut]
        self.acoustic = utterance.acoustic[cut].astype(np.float32)
