"""Train the ordering LoRA on seeded dialogs: `python -m build train orders`.

A fixed number of steps; every batch depends only on the seed and its step, so a run that resumes
from its last checkpoint ends with the weights of an uninterrupted one on the same machine. What all
prompts begin with, the menu, is computed once a step and shared by its dialogs.
"""

import hashlib
import json
import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from build.fetch import cache_dir, replacing
from build.lineage import code_of
from build.llama.model import Cache, Llama
from build.smollm import lora, weights
from build.smollm.dialogs import sample
from python_backends.ordering.prompt import Utterance, prompt_tokens, system_text

CURVE = lora.ADAPTERS.with_name("training.json")
"""Loss and exact answers while it trained; drawn by `build.smollm.curve`."""

_CHECKPOINT_EVERY = 10


@dataclass(frozen=True)
class Recipe:
    """Everything the result depends on, besides the code and the base weights."""

    steps: int = 480
    batch: int = 6
    micro: int = 3
    context: int = 640
    """Tokens a dialog keeps: older exchanges are dropped as serving drops them."""
    rate: float = 1.2e-3
    warmup: int = 15
    decay: int = 180
    """Last steps, over which the rate falls to zero. Before them it stays, so that a longer
    training goes on from a shorter one's checkpoint."""
    seed: int = 21
    validation: int = 16
    """Dialogs, each of three exchanges or more."""
    validate_every: int = 40

    def rate_at(self, step: int) -> float:
        """Learning rate: a linear warm-up, constant, falling linearly to zero."""
        return self.rate * min(1.0, (step + 1) / self.warmup, (self.steps - step) / self.decay)


def dialog_tokens(dialog: list[tuple[str, str]], tokenizer: Tokenizer, limit: int) -> list[int]:
    """The prompt as serving builds it for the last exchange, followed by its answer."""
    history = [
        Utterance(role, text)
        for exchange in dialog[:-1]
        for role, text in zip(("user", "assistant"), exchange, strict=True)
    ]
    heard, answer = dialog[-1]

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    tail = encode(f"{answer}<|im_end|>")
    return prompt_tokens(history, heard, encode, limit=limit - len(tail)) + tail


def prefix_tokens(tokenizer: Tokenizer) -> list[int]:
    """What every prompt begins with."""
    return list(tokenizer.encode(system_text(), add_special_tokens=False).ids)


def answer_mask(ids: Tensor, tokenizer: Tokenizer) -> Tensor:
    """Where ids [B, T] are answers of the assistant, their <|im_end|> included: bool [B, T]."""
    opening = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False).ids
    end = weights.end_token()
    mask = torch.zeros_like(ids, dtype=torch.bool)
    for row, marks in zip(ids.tolist(), mask, strict=True):
        inside = False
        for at, token in enumerate(row):
            marks[at] = inside
            opened = row[max(0, at + 1 - len(opening)) : at + 1] == opening
            inside = opened or (inside and token != end)
    return mask


def dialogs_at(step: int, recipe: Recipe) -> list[list[tuple[str, str]]]:
    """One step's dialogs; those of the validation are drawn again."""
    rng = random.Random(f"{recipe.seed}/{step}")
    known = _held_back(recipe)
    found: list[list[tuple[str, str]]] = []
    while len(found) < recipe.batch:
        dialog = sample(rng)
        if repr(dialog) not in known:
            found.append(dialog)
    return found


def validation_dialogs(recipe: Recipe) -> list[list[tuple[str, str]]]:
    """Dialogs that are not trained on."""
    rng = random.Random(f"{recipe.seed}/validation")
    found: list[list[tuple[str, str]]] = []
    while len(found) < recipe.validation:
        dialog = sample(rng)
        if len(dialog) >= 3:
            found.append(dialog)
    return found


@cache
def _held_back(recipe: Recipe) -> frozenset[str]:
    return frozenset(repr(dialog) for dialog in validation_dialogs(recipe))


def batches(
    dialogs: list[list[tuple[str, str]]], recipe: Recipe, tokenizer: Tokenizer
) -> list[Tensor]:
    """Dialogs behind the prefix as micro-batches of like lengths: ids [B, T], padded."""
    prefix = len(prefix_tokens(tokenizer))
    rows = [dialog_tokens(dialog, tokenizer, recipe.context)[prefix:] for dialog in dialogs]
    rows.sort(key=len)
    padding = weights.end_token()
    groups = [rows[at : at + recipe.micro] for at in range(0, len(rows), recipe.micro)]
    return [
        torch.tensor([row + [padding] * (len(group[-1]) - len(row)) for row in group])
        for group in groups
    ]


def batch_at(step: int, recipe: Recipe, tokenizer: Tokenizer) -> list[Tensor]:
    """One step's micro-batches."""
    return batches(dialogs_at(step, recipe), recipe, tokenizer)


class Prefix:
    """What all prompts begin with: keys and values, and what their gradient adds up to."""

    def __init__(self, model: Llama, ids: list[int]) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            _, self._cache = model(torch.tensor([ids]))
        self._leaves = [
            (keys.detach().requires_grad_(), values.detach().requires_grad_())
            for keys, values in self._cache
        ]

    def cache(self, rows: int) -> Cache:
        """For a batch of `rows`."""
        return [
            (keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1))
            for keys, values in self._leaves
        ]

    def backward(self) -> None:
        """Carry on the gradient of everything that used it."""
        pairs = zip(self._cache, self._leaves, strict=True)
        both = [pair for own, leaf in pairs for pair in zip(own, leaf, strict=True)]
        used = [(own, leaf.grad) for own, leaf in both if leaf.grad is not None]
        torch.autograd.backward([own for own, _ in used], [grad for _, grad in used])


def logits_of(model: Llama, ids: Tensor, mask: Tensor, prefix: Prefix) -> tuple[Tensor, Tensor]:
    """Logits [N, V] where an answer's token follows, and those tokens [N]."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden, _ = model(ids, prefix.cache(len(ids)))
    counted = mask[:, 1:]
    return model.logits(hidden[:, :-1][counted].float()), ids[:, 1:][counted]


def train(recipe: Recipe | None = None) -> Path:
    """Run or resume training, and write the adapters and the curve to weights/orders."""
    recipe = recipe or Recipe()
    torch.manual_seed(recipe.seed)
    tokenizer = weights.tokenizer()
    model = Llama(weights.config())
    model.load_state_dict(weights.state_dict())
    trained = lora.attach(model)
    _halve(model)
    optimizer = torch.optim.AdamW(trained, lr=recipe.rate, betas=(0.9, 0.99), weight_decay=0.0)
    curve: list[dict[str, float]] = []
    for step in remaining_steps(recipe, model, optimizer, curve):
        if step % recipe.validate_every == 0:
            curve.append({"step": step, **validate(model, recipe, tokenizer)})
            tqdm.write(json.dumps(curve[-1]))
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate_at(step)
        optimizer.zero_grad()
        loss = _backward(model, batch_at(step, recipe, tokenizer), tokenizer)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        curve.append({"step": step + 1, "loss": loss})
    curve.append({"step": recipe.steps, **validate(model, recipe, tokenizer)})
    with replacing(lora.ADAPTERS) as partial:
        lora.save(lora.adapter_state(model), partial)
    with replacing(CURVE) as partial:
        partial.write_text(json.dumps(account(recipe, curve), indent=0) + "\n")
    return lora.ADAPTERS


def account(recipe: Recipe, curve: list[dict[str, float]]) -> dict[str, Any]:
    """What is kept of a training: its recipe, a digest of what it trained on, and its curve."""
    points = [{name: round(value, 4) for name, value in point.items()} for point in curve]
    return {"recipe": asdict(recipe), "dialogs_sha256": dialogs_digest(recipe), "points": points}


def dialogs_digest(recipe: Recipe) -> str:
    """Of every dialog that a recipe trains on."""
    digest = hashlib.sha256()
    for step in range(recipe.steps):
        digest.update(repr(dialogs_at(step, recipe)).encode())
    return digest.hexdigest()


@torch.no_grad()
def validate(model: Llama, recipe: Recipe, tokenizer: Tokenizer) -> dict[str, float]:
    """Nats a token, and the share of answers that greedy decoding would give word for word.

    Each answer is judged behind the dialog's own earlier answers.
    """
    prefix = Prefix(model, prefix_tokens(tokenizer))
    loss, tokens, exact, answers = 0.0, 0, 0, 0
    end = weights.end_token()
    for ids in batches(validation_dialogs(recipe), recipe, tokenizer):
        logits, expected = logits_of(model, ids, answer_mask(ids, tokenizer), prefix)
        loss += float(functional.cross_entropy(logits, expected, reduction="sum"))
        tokens += len(expected)
        right = True
        for same, token in zip(
            (logits.argmax(-1) == expected).tolist(), expected.tolist(), strict=True
        ):
            right = right and same
            if token == end:
                exact, answers, right = exact + right, answers + 1, True
    return {"validation_loss": loss / tokens, "exact": exact / answers}


def _backward(model: Llama, batch: list[Tensor], tokenizer: Tokenizer) -> float:
    """Accumulate the gradient of the mean loss over a step's micro-batches; that loss."""
    masks = [answer_mask(ids, tokenizer) for ids in batch]
    count = sum(int(mask.sum()) for mask in masks)
    prefix = Prefix(model, prefix_tokens(tokenizer))
    total = 0.0
    for ids, mask in zip(batch, masks, strict=True):
        logits, expected = logits_of(model, ids, mask, prefix)
        loss = functional.cross_entropy(logits, expected, reduction="sum") / count
        torch.autograd.backward(loss)
        total += loss.item()
    prefix.backward()
    return total


def _halve(model: Llama) -> None:
    """Keep the frozen linear weights in bf16: autocast computes with bf16 copies anyway."""
    for module in model.modules():
        if isinstance(module, lora.LoraLinear):
            module.base.to(torch.bfloat16)


def remaining_steps(
    recipe: Recipe,
    model: Llama,
    optimizer: torch.optim.AdamW,
    curve: list[dict[str, float]],
) -> Iterator[int]:
    """Steps still to do; restores the last checkpoint first and keeps one every few steps."""
    path = cache_dir() / "checkpoints" / "orders.pt"
    key, done = _fingerprint(recipe), 0
    if path.exists():
        saved = torch.load(path, weights_only=True)
        if saved.get("key") == key and _goes_on(saved["step"], saved["steps"], recipe):
            model.load_state_dict(saved["adapters"], strict=False)
            optimizer.load_state_dict(saved["optimizer"])
            curve += saved["curve"]
            done = saved["step"]
    bar = tqdm(range(done, recipe.steps), "orders LoRA", recipe.steps, initial=done)
    for step in bar:
        yield step
        bar.set_postfix_str(f"{curve[-1].get('loss', math.nan):.3f} nats" if curve else "")
        if (step + 1) % _CHECKPOINT_EVERY == 0:
            with replacing(path) as partial:
                torch.save(_snapshot(key, recipe, model, optimizer, step + 1, curve), partial)


def _goes_on(step: int, steps: int, recipe: Recipe) -> bool:
    """Whether what was trained up to `step` of `steps` is what this recipe would have done."""
    return steps == recipe.steps or step <= min(steps, recipe.steps) - recipe.decay


def _fingerprint(recipe: Recipe) -> str:
    """Of the recipe, but for its length, and the code behind the training text."""
    digest = hashlib.sha256(repr(replace(recipe, steps=0)).encode())
    for path in code_of(batch_at):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _snapshot(
    key: str,
    recipe: Recipe,
    model: Llama,
    optimizer: torch.optim.AdamW,
    step: int,
    curve: list[dict[str, float]],
) -> dict[str, Any]:
    return {
        "key": key,
        "step": step,
        "steps": recipe.steps,
        "adapters": lora.adapter_state(model),
        "optimizer": optimizer.state_dict(),
        "curve": curve,
    }
