"""What one model of the Llama family differs from another by."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding: pair i of a head turns by `frequencies[i]` rad a position; what
    is turned is also multiplied by `factor`."""

    frequencies: tuple[float, ...]
    factor: float = 1.0


def rope_of(head_width: int, theta: float) -> Rope:
    """The plain one (Su et al. 2021, RoFormer)."""
    steps = torch.arange(0, head_width, 2, dtype=torch.float64) / head_width
    return Rope(tuple((theta**-steps).tolist()))


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a model; `epsilon` is that of every RMSNorm."""

    layers: int
    heads: int
    kv_heads: int
    head_width: int
    """Channels of one attention head."""

    width: int
    hidden: int
    vocabulary: int
    epsilon: float
    rope: Rope
    qkv_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    head_norms: bool = False
    """Queries and keys are normed, head by head, before they are turned (Qwen3)."""

    tied: bool = True
    """The head is the embedding's matrix."""
