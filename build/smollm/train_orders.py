"""Train the ordering LoRA on seeded dialogs: `python -m build train orders`.

A fixed number of steps; every batch depends only on the seed and its step, so a run that resumes
from its last checkpoint ends with the weights of an uninterrupted one on the same machine.
"""

import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from build.fetch import cache_dir, replacing
from build.lineage import code_of
from build.smollm import lora, weights
from build.smollm.dialogs import sample
from build.smollm.model import Llama
from python_backends.ar_loop.prompt import Utterance, prompt_tokens

_CHECKPOINT_EVERY = 10


@dataclass(frozen=True)
class Recipe:
    """Everything the result depends on, besides the code and the base weights."""

    steps: int = 80
    batch: int = 12
    micro: int = 4
    context: int = 192
    """Tokens a dialog keeps: older exchanges are dropped as serving drops them."""
    rate: float = 2e-3
    warmup: int = 8
    seed: int = 20

    def rate_at(self, step: int) -> float:
        """Learning rate: linear warm-up, then a cosine to zero."""
        rise = min(1.0, (step + 1) / self.warmup)
        return self.rate * rise * (0.5 + 0.5 * math.cos(math.pi * step / self.steps))


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


def batch_at(step: int, recipe: Recipe, tokenizer: Tokenizer) -> list[Tensor]:
    """One step's dialogs as micro-batches of like lengths: ids [B, T], padded with <|im_end|>."""
    rng = random.Random(f"{recipe.seed}/{step}")
    rows = [dialog_tokens(sample(rng), tokenizer, recipe.context) for _ in range(recipe.batch)]
    rows.sort(key=len)
    padding = weights.end_token()
    groups = [rows[at : at + recipe.micro] for at in range(0, len(rows), recipe.micro)]
    return [
        torch.tensor([row + [padding] * (len(group[-1]) - len(row)) for row in group])
        for group in groups
    ]


def loss_of(model: Llama, ids: Tensor, mask: Tensor) -> Tensor:
    """Summed cross entropy of the answers' tokens in nats; the head runs only where it counts."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden, _ = model(ids)
    counted = mask[:, 1:]
    logits = model.logits(hidden[:, :-1][counted].float())
    return functional.cross_entropy(logits, ids[:, 1:][counted], reduction="sum")


def train(recipe: Recipe | None = None) -> Path:
    """Run or resume training, and write the adapters to weights/orders."""
    recipe = recipe or Recipe()
    torch.manual_seed(recipe.seed)
    tokenizer = weights.tokenizer()
    model = Llama(weights.config())
    model.load_state_dict(weights.state_dict())
    trained = lora.attach(model)
    _halve(model)
    optimizer = torch.optim.AdamW(trained, lr=recipe.rate, weight_decay=0.0)
    for step in remaining_steps(recipe, model, optimizer):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate_at(step)
        optimizer.zero_grad()
        loss = _backward(model, batch_at(step, recipe, tokenizer), tokenizer)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        tqdm.write(f"step {step + 1}: loss {loss:.3f} nats a token")
    with replacing(lora.ADAPTERS) as partial:
        lora.save(lora.adapter_state(model), partial)
    return lora.ADAPTERS


def _backward(model: Llama, batch: list[Tensor], tokenizer: Tokenizer) -> float:
    """Accumulate the gradient of the mean loss over a step's micro-batches; that loss."""
    masks = [answer_mask(ids, tokenizer) for ids in batch]
    count = sum(int(mask.sum()) for mask in masks)
    total = 0.0
    for ids, mask in zip(batch, masks, strict=True):
        loss = loss_of(model, ids, mask) / count
        torch.autograd.backward(loss)
        total += loss.item()
    return total


def _halve(model: Llama) -> None:
    """Keep the frozen linear weights in bf16: autocast computes with bf16 copies anyway."""
    for module in model.modules():
        if isinstance(module, lora.LoraLinear):
            module.base.to(torch.bfloat16)


def remaining_steps(recipe: Recipe, model: Llama, optimizer: torch.optim.AdamW) -> Iterator[int]:
    """Steps still to do; restores the last checkpoint first and keeps one every few steps."""
    path = cache_dir() / "checkpoints" / "orders.pt"
    key, done = _fingerprint(recipe), 0
    if path.exists():
        saved = torch.load(path, weights_only=True)
        if saved["key"] == key:
            model.load_state_dict(saved["adapters"], strict=False)
            optimizer.load_state_dict(saved["optimizer"])
            done = saved["step"]
    for step in tqdm(range(done, recipe.steps), "orders LoRA", recipe.steps, initial=done):
        yield step
        if (step + 1) % _CHECKPOINT_EVERY == 0:
            with replacing(path) as partial:
                torch.save(_snapshot(key, model, optimizer, step + 1), partial)


def _fingerprint(recipe: Recipe) -> str:
    """Of the recipe and the code behind the training text: checkpoints of others are ignored."""
    digest = hashlib.sha256(repr(recipe).encode())
    for path in code_of(batch_at):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _snapshot(key: str, model: Llama, optimizer: torch.optim.AdamW, step: int) -> dict[str, object]:
    return {
        "key": key,
        "step": step,
        "adapters": lora.adapter_state(model),
        "optimizer": optimizer.state_dict(),
    }
