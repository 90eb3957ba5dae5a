"""Trains the flow decoder by optimal-transport conditional flow matching on crops of utterances."""

from typing import Final

import numpy as np
import torch
from torch import Tensor

from build.voice.batches import stack_padded
from build.voice.corpus import Corpus, Utterance
from build.voice.flow_decoder import PHONEME_REACH, FlowDecoder
from build.voice.training import Recipe, Trainer
from python_backends.diffusion_lock.frames import frame_positions
from python_backends.speech import FRAMES_PER_TICK

STEPS: Final = 3700

_BATCH: Final = 8
_CROP_FRAMES: Final = 256
_EXCITATION_WEIGHT: Final = 3.0
"""Weight of F0 and voicing in the loss; a latent weighs its standard deviation."""


def train_flow(corpus: Corpus, steps: int = STEPS) -> FlowDecoder:
    """A flow decoder trained on the corpus; continues from its checkpoint."""
    recipe = Recipe(
        "flow_decoder",
        corpus.fingerprint,
        steps,
        learning_rate=2e-3,
        warmup_steps=100,
        weight_decay=0.01,
        betas=(0.9, 0.98),
    )
    torch.manual_seed(recipe.seed)
    model = FlowDecoder()
    loss = FlowLoss(model, corpus)
    trained = Trainer(recipe, model).run(loss)
    assert isinstance(trained, FlowDecoder)
    return trained


class FlowLoss:
    """Mean squared error of the velocity on a random batch of crops."""

    def __init__(self, model: FlowDecoder, corpus: Corpus) -> None:
        self._model = model
        self._utterances = corpus.training
        weight = np.append(corpus.basis.scale, [_EXCITATION_WEIGHT] * 2)
        self._weight = torch.tensor(weight / weight.mean(), dtype=torch.float32)

    def __call__(self, rng: np.random.Generator) -> Tensor:
        chosen = rng.integers(0, len(self._utterances), _BATCH)
        crops = [Crop(self._utterances[i], rng) for i in chosen]
        speech = stack_padded([c.acoustic for c in crops], 0)
        noise = torch.randn_like(speech.values)
        time = torch.sigmoid(torch.randn(_BATCH, 1))
        state = torch.lerp(noise, speech.values, time[..., None])
        with torch.autocast("cpu", torch.bfloat16):
            velocity = self._model(state, time, self._condition(crops), speech.lengths)
        error = (velocity.float() - (speech.values - noise)).square() * self._weight
        loss: Tensor = (error.mean(-1) * speech.mask).sum() / speech.mask.sum()
        return loss

    def _condition(self, crops: list["Crop"]) -> Tensor:
        condition: Tensor = self._model.condition(
            stack_padded([c.phonemes for c in crops], 0).values,
            stack_padded([c.pitch for c in crops], -1).values,
            stack_padded([c.frame_phoneme for c in crops], 0).values,
            stack_padded([c.position for c in crops], 0).values,
        )
        return condition


class Crop:
    """At most _CROP_FRAMES frames of an utterance, with the phonemes that influence them."""

    def __init__(self, utterance: Utterance, rng: np.random.Generator) -> None:
        frame_phoneme, position = frame_positions(utterance.ticks * FRAMES_PER_TICK)
        start = int(rng.integers(0, max(1, len(frame_phoneme) - _CROP_FRAMES + 1)))
        frames = slice(start, start + _CROP_FRAMES)
        inside = frame_phoneme[frames]
        first = max(0, int(inside[0]) - PHONEME_REACH)
        phonemes = slice(first, int(inside[-1]) + PHONEME_REACH + 1)
        self.phonemes = utterance.phonemes[phonemes]
        self.pitch = utterance.pitch[phonemes]
        self.frame_phoneme = inside - first
        self.position = position[frames]
        self.acoustic = utterance.acoustic[frames].astype(np.float32)
