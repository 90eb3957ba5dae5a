"""A conversation with the PyTorch model, prompted exactly as in serving."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from build.smollm import weights
from build.smollm.model import Cache, Llama
from python_backends.ar_loop.prompt import Utterance, prompt_tokens

MOST_TOKENS = 64
"""Of an answer, as `think` has it."""


def encode(text: str) -> list[int]:
    """Token ids of a prompt, special tokens included."""
    return list(weights.tokenizer().encode(text, add_special_tokens=False).ids)


class Speaker(Protocol):
    """Anything that continues a prompt greedily."""

    def greedy(self, prompt: Sequence[int]) -> list[int]:
        """The tokens of the answer, without the one that ends it."""


class Torch:
    """A model that computes again only what differs from the prompt before."""

    def __init__(self, model: Llama) -> None:
        self._model = model
        self._known: list[int] = []
        self._cache: Cache | None = None

    @torch.no_grad()
    def greedy(self, prompt: Sequence[int]) -> list[int]:
        """See Speaker."""
        kept = min(_common(self._known, prompt), len(prompt) - 1)
        cache = None
        if self._cache is not None and kept:
            cache = [(keys[:, :, :kept], values[:, :, :kept]) for keys, values in self._cache]
        tokens: list[int] = []
        ids = torch.tensor([prompt[kept if cache else 0 :]])
        while len(tokens) < MOST_TOKENS:
            hidden, cache = self._model(ids, cache)
            token = int(self._model.logits(hidden[0, -1]).argmax())
            if token == weights.end_token():
                break
            tokens.append(token)
            ids = torch.tensor([[token]])
        self._known, self._cache = list(prompt), cache
        return tokens


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def answers(speaker: Speaker, heard: Sequence[str], told: Callable[[str], None]) -> list[str]:
    """The answers to one conversation; the model's own earlier ones are its history.

    `told` is called with every answer.
    """
    history: list[Utterance] = []
    found = []
    for line in heard:
        tokens = speaker.greedy(prompt_tokens(history, line, encode))
        found.append(weights.tokenizer().decode(tokens).strip())
        told(found[-1])
        history += [Utterance("user", line), Utterance("assistant", found[-1])]
    return found
