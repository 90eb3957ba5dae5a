"""Llama and its kin in plain PyTorch: reference of the step graphs, base of the ordering LoRA."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from build.llama.config import LlamaConfig

Cache = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer so far, each [B, KV, P, D]."""


class RmsNorm(nn.Module):
    """Root-mean-square norm (Zhang and Sennrich 2019) over the last dimension, computed in fp32."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> the same shape and dtype."""
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return (wide * scale * self.weight).to(x.dtype)


class Block(nn.Module):
    """One pre-norm layer: rotary grouped-query attention, then a SwiGLU feed-forward."""

    def __init__(self, sizes: LlamaConfig) -> None:
        super().__init__()
        width = sizes.width
        own, kv = sizes.heads * sizes.head_width, sizes.kv_heads * sizes.head_width
        self.sizes = sizes
        self.attention_norm = RmsNorm(width, sizes.epsilon)
        self.query = nn.Linear(width, own, bias=sizes.qkv_bias)
        self.key = nn.Linear(width, kv, bias=sizes.qkv_bias)
        self.value = nn.Linear(width, kv, bias=sizes.qkv_bias)
        self.output = nn.Linear(own, width, bias=sizes.output_bias)
        self.query_norm = RmsNorm(sizes.head_width, sizes.epsilon) if sizes.head_norms else None
        self.key_norm = RmsNorm(sizes.head_width, sizes.epsilon) if sizes.head_norms else None
        self.ffn_norm = RmsNorm(width, sizes.epsilon)
        self.gate = nn.Linear(width, sizes.hidden, bias=sizes.ffn_bias)
        self.up = nn.Linear(width, sizes.hidden, bias=sizes.ffn_bias)
        self.down = nn.Linear(sizes.hidden, width, bias=sizes.ffn_bias)

    def forward(
        self, x: Tensor, angles: Tensor, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x [B, T, width], angles [T, D/2] -> x, (keys, values) [B, KV, P + T, D]."""
        h = self.attention_norm(x)
        query, key = self._heads(self.query(h)), self._heads(self.key(h))
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        factor = self.sizes.rope.factor
        query, key = rotate(query, angles, factor), rotate(key, angles, factor)
        value = self._heads(self.value(h))
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        x = x + self.output(self._attend(query, key, value))
        h = self.ffn_norm(x)
        x = x + self.down(functional.silu(self.gate(h)) * self.up(h))
        return x, (key, value)

    def _heads(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        return x.view(batch, length, -1, self.sizes.head_width).transpose(1, 2)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Causal attention of the newest T of P + T positions -> [B, T, width].

        The query heads of a key-value head are rows of one matrix: on a CPU that takes half the
        time of the fused kernel, backward included.
        """
        batch, heads, length, width = query.shape
        kv, total = key.shape[1:3]
        rows = query.reshape(batch, kv, heads // kv * length, width) / math.sqrt(width)
        own = torch.arange(total - length, total)[:, None]
        hidden = torch.arange(total)[None] > own
        bias = torch.zeros(length, total, dtype=query.dtype).masked_fill(hidden, -torch.inf)
        key, value = key.to(query.dtype), value.to(query.dtype)
        scores = rows @ key.transpose(-1, -2) + bias.repeat(heads // kv, 1)
        mixed = (torch.softmax(scores, -1) @ value).view(batch, heads, length, width)
        return mixed.transpose(1, 2).flatten(2)


class Llama(nn.Module):
    """Decoder-only transformer."""

    def __init__(self, sizes: LlamaConfig) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = RmsNorm(sizes.width, sizes.epsilon)
        self.head = None if sizes.tied else nn.Linear(sizes.width, sizes.vocabulary, bias=False)

    def forward(self, ids: Tensor, cache: Cache | None = None) -> tuple[Tensor, Cache]:
        """ids [B, T] after the cached positions -> hidden [B, T, width], the longer cache."""
        start = cache[0][0].shape[2] if cache else 0
        positions = torch.arange(start, start + ids.shape[1])
        angles = rotary_angles(positions, self.sizes)
        x, grown = self.embedding(ids), []
        for index, block in enumerate(self.blocks):
            x, layer = block(x, angles, cache[index] if cache else None)
            grown.append(layer)
        return self.norm(x), grown

    def block(self, layer: int) -> Block:
        """One layer, typed."""
        block = self.blocks[layer]
        assert isinstance(block, Block)
        return block

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., width] -> logits [..., vocabulary]."""
        return hidden @ self.head_weight.T

    @property
    def head_weight(self) -> Tensor:
        """[vocabulary, width]."""
        return self.embedding.weight if self.head is None else self.head.weight

    @torch.no_grad()
    def greedy(self, prompt: Sequence[int], *, end: int, limit: int = 64) -> list[int]:
        """The most likely continuation of one prompt, without `end`, at most `limit` tokens."""
        tokens: list[int] = []
        ids, cache = torch.tensor([list(prompt)]), None
        while len(tokens) < limit:
            hidden, cache = self(ids, cache)
            token = int(self.logits(hidden[0, -1]).argmax())
            if token == end:
                break
            tokens.append(token)
            ids = torch.tensor([[token]])
        return tokens


def rotary_angles(positions: Tensor, sizes: LlamaConfig) -> Tensor:
    """Angles [T, D/2] in radians of integer positions [T]."""
    frequencies = torch.tensor(sizes.rope.frequencies, dtype=torch.float64)
    return (positions[:, None].double() * frequencies[None]).float()


def rotate(x: Tensor, angles: Tensor, factor: float = 1.0) -> Tensor:
    """Rotate the two halves of each head [B, H, T, D] by angles [T, D/2]."""
    cosine, sine = (factor * angles.cos()).to(x.dtype), (factor * angles.sin()).to(x.dtype)
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], -1)
