"""Kinds of rotary position embedding that Hugging Face configurations name.

Formulas as in transformers `modeling_rope_utils.py`; "llama3" is that of Llama 3.1, "yarn" that of
Peng et al. 2023 (YaRN).
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from build.errors import CheckpointUnfit
from build.llama.config import Rope, rope_of
from build.own.checkpoint import Checkpoint

KINDS: Final = ("default", "linear", "dynamic", "llama3", "yarn")
Given = Mapping[str, Any]


def rope(checkpoint: Checkpoint, head_width: int, positions: int) -> Rope:
    """The one of a checkpoint, for rows of at most so many positions."""
    config = checkpoint.config
    given: Given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(given.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    if float(config.get("partial_rotary_factor") or given.get("partial_rotary_factor") or 1) != 1:
        raise CheckpointUnfit(
            f"{checkpoint.folder}: a rotary embedding of part of a head is not supported"
        )
    kind = given.get("rope_type") or given.get("type") or "default"
    plain = rope_of(head_width, theta)
    trained = checkpoint.size("max_position_embeddings")
    match kind:
        case "default":
            return plain
        case "linear":
            return Rope(tuple(one / _number(given, "factor") for one in plain.frequencies))
        case "dynamic":  # as it was trained, up to there
            if positions <= trained:
                return plain
            raise CheckpointUnfit(
                f"{checkpoint.folder}: rope type 'dynamic' is supported up to the {trained} "
                f"positions of its training, not {positions}; lower --capacity"
            )
        case "llama3":
            return _llama3(plain, given)
        case "yarn":
            return _yarn(head_width, theta, given, trained)
    raise CheckpointUnfit(
        f"{checkpoint.folder}: rope type {kind!r} is not supported; known: {', '.join(KINDS)}"
    )


def _llama3(plain: Rope, given: Given) -> Rope:
    factor, low, high, original = (
        _number(given, key)
        for key in (
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_max_position_embeddings",
        )
    )

    def scaled(frequency: float) -> float:
        turns = original * frequency / (2 * math.pi)
        if turns < low:
            return frequency / factor
        if turns > high:
            return frequency
        share = (turns - low) / (high - low)
        return (1 - share) * frequency / factor + share * frequency

    return Rope(tuple(map(scaled, plain.frequencies)))


def _yarn(width: int, theta: float, given: Given, trained: int) -> Rope:
    factor = _number(given, "factor")
    original = float(given.get("original_max_position_embeddings") or trained)

    def pair_that_turns(times: float) -> float:
        """In `original` positions."""
        return width * math.log(original / (times * 2 * math.pi)) / (2 * math.log(theta))

    first = pair_that_turns(float(given.get("beta_fast") or 32))
    last = pair_that_turns(float(given.get("beta_slow") or 1))
    if given.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    spread = (last - first) or 0.001
    share = ((torch.arange(width // 2, dtype=torch.float64) - first) / spread).clamp(0, 1)
    plain: Tensor = torch.tensor(rope_of(width, theta).frequencies, dtype=torch.float64)
    mixed = plain / factor * share + plain * (1 - share)
    return Rope(tuple(mixed.tolist()), _yarn_attention(given, factor))


def _yarn_attention(given: Given, factor: float) -> float:
    if given.get("attention_factor") is not None:
        return _number(given, "attention_factor")

    def scale(strength: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * strength * math.log(factor) + 1.0

    some, all_of_it = given.get("mscale"), given.get("mscale_all_dim")
    if some and all_of_it:
        return scale(float(some)) / scale(float(all_of_it))
    return scale(1.0)


def _number(given: Given, key: str) -> float:
    found = given.get(key)
    if not isinstance(found, int | float):
        raise CheckpointUnfit(f"the rope parameters have {key} {found!r}, not a number")
    return float(found)
