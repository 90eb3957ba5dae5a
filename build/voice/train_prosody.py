"""Trains the prosody LM with teacher forcing: cross entropy of duration and pitch tokens."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from build.voice.batches import stack_padded
from build.voice.corpus import Corpus, Utterance
from build.voice.prosody_lm import ProsodyLM
from build.voice.training import History, Recipe, Trainer, hash_of_code
from python_backends.speech import DURATIONS

STEPS: Final = 3000
MORE_STEPS: Final = 2000
"""From weights that have been trained before."""

_BATCH: Final = 16
_POOL: Final = 8
"""Batches drawn together and sorted by length, so that little of a batch is padding."""


def train_prosody(
    corpus: Corpus, start: ProsodyLM | None = None, steps: int | None = None
) -> tuple[ProsodyLM, History]:
    """A prosody LM trained on the corpus, from `start` or from nothing; continues from its
    checkpoint."""
    recipe = Recipe(
        "prosody_lm",
        corpus.fingerprint,
        hash_of_code(train_prosody),
        steps or (MORE_STEPS if start else STEPS),
        learning_rate=6e-4 if start else 1e-3,
        warmup_steps=50,
        weight_decay=0.02,
    )
    torch.manual_seed(recipe.seed)
    model = start.train().requires_grad_(True) if start else ProsodyLM()
    utterances = corpus.training

    def loss_of_batch(rng: np.random.Generator) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            duration, pitch = cross_entropies(model, draw(utterances, rng))
        return duration + pitch

    def validate(average: nn.Module) -> dict[str, float]:
        assert isinstance(average, ProsodyLM)
        duration, pitch = cross_entropies(average, corpus.held_out)
        return {"duration": duration.item(), "pitch": pitch.item()}

    trainer = Trainer(recipe, model, validate)
    trained = trainer.run(loss_of_batch)
    assert isinstance(trained, ProsodyLM)
    return trained, trainer.history


def draw(utterances: Sequence[Utterance], rng: np.random.Generator) -> list[Utterance]:
    """A random batch of utterances of similar length."""
    pool = [utterances[i] for i in rng.integers(0, len(utterances), _BATCH * _POOL)]
    pool.sort(key=lambda utterance: len(utterance.phonemes))
    first = _BATCH * int(rng.integers(_POOL))
    return pool[first : first + _BATCH]


def cross_entropies(model: ProsodyLM, utterances: Sequence[Utterance]) -> tuple[Tensor, Tensor]:
    """Mean cross entropy a phoneme, in nats, of duration tokens and of pitch tokens."""
    phonemes = stack_padded([u.phonemes for u in utterances], 0)
    tokens = stack_padded([_tokens(u) for u in utterances], 0).values
    voice = torch.tensor([[u.voice] for u in utterances])
    encoded = model.encode(phonemes.values, voice, phonemes.mask[..., None])
    previous = functional.pad(tokens[:, :-1] + 1, (0, 0, 1, 0))
    hidden = model(encoded, previous)
    duration, pitch = tokens[..., 0], tokens[..., 1]

    def mean(logits: Tensor, target: Tensor) -> Tensor:
        each = functional.cross_entropy(logits.float().mT, target, reduction="none")
        return (each * phonemes.mask).sum() / phonemes.mask.sum()

    pitch_logits = model.pitch_logits(hidden, duration)
    return mean(model.duration_logits(hidden), duration), mean(pitch_logits, pitch)


def _tokens(utterance: Utterance) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """int64 [P, 2]: duration and pitch tokens."""
    duration = np.clip(utterance.ticks, 0, DURATIONS - 1)
    return np.stack([duration, utterance.pitch], -1)
