"""Whisper (Radford et al. 2022) in plain PyTorch: exported, and reference of the steps."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from build.whisper.config import WhisperConfig

Cache = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, each [B, H, P, D]."""


def split_heads(x: Tensor, head_width: int) -> Tensor:
    """[B, T, H * D] -> [B, H, T, D]."""
    batch, length, width = x.shape
    return x.view(batch, length, width // head_width, head_width).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[B, H, T, D] -> [B, T, H * D]."""
    return x.transpose(1, 2).flatten(2)


class EncoderLayer(nn.Module):
    """Pre-norm self-attention and feed-forward over all positions."""

    def __init__(self, sizes: WhisperConfig) -> None:
        super().__init__()
        width = sizes.width
        self.head_width = sizes.head_width
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.ffn_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, sizes.hidden)
        self.down = nn.Linear(sizes.hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, F, width] -> the same shape."""
        packed = self.qkv(self.attention_norm(x)).chunk(3, -1)
        query, key, value = (split_heads(part, self.head_width) for part in packed)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.output(merge_heads(mixed))
        return x + self.feed_forward(x)

    def feed_forward(self, x: Tensor) -> Tensor:
        """The second half of the layer, without its residual."""
        inner: Tensor = self.down(functional.gelu(self.up(self.ffn_norm(x))))
        return inner


class Encoder(nn.Module):
    """Log-mel frames to hidden states, two frames a state."""

    def __init__(self, sizes: WhisperConfig) -> None:
        super().__init__()
        self.sizes = sizes
        self.conv1 = nn.Conv1d(sizes.mels, sizes.width, 3, padding=1)
        self.conv2 = nn.Conv1d(sizes.width, sizes.width, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.zeros(sizes.encoder_context, sizes.width))
        self.layers = nn.ModuleList(EncoderLayer(sizes) for _ in range(sizes.encoder_layers))
        self.norm = nn.LayerNorm(sizes.width)

    def forward(self, mel: Tensor) -> Tensor:
        """mel [B, mels, T], T even and at most 3000 -> hidden [B, T / 2, width]."""
        x = functional.gelu(self.conv1(mel))
        x = functional.gelu(self.conv2(x)).transpose(1, 2)
        x = x + self.positions[: x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        hidden: Tensor = self.norm(x)
        return hidden


class DecoderLayer(EncoderLayer):
    """Causal self-attention, cross-attention to the encoder's states, feed-forward."""

    def __init__(self, sizes: WhisperConfig) -> None:
        super().__init__(sizes)
        width = sizes.width
        self.cross_norm = nn.LayerNorm(width)
        self.cross_query = nn.Linear(width, width)
        self.cross_key_value = nn.Linear(width, 2 * width)
        self.cross_output = nn.Linear(width, width)

    def cross(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states [B, F, width] -> cross keys and values, each [B, H, F, D]."""
        key, value = self.cross_key_value(hidden).chunk(2, -1)
        return split_heads(key, self.head_width), split_heads(value, self.head_width)

    def step(
        self, x: Tensor, past: tuple[Tensor, Tensor], cross: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x [B, T, width] after the past -> x, the longer keys and values."""
        packed = self.qkv(self.attention_norm(x)).chunk(3, -1)
        query, key, value = (split_heads(part, self.head_width) for part in packed)
        key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        total, length = key.shape[2], query.shape[2]
        seen = torch.arange(total)[None] <= torch.arange(total - length, total)[:, None]
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        x = x + self.output(merge_heads(mixed))
        query = split_heads(self.cross_query(self.cross_norm(x)), self.head_width)
        mixed = functional.scaled_dot_product_attention(query, *cross)
        x = x + self.cross_output(merge_heads(mixed))
        return x + self.feed_forward(x), (key, value)


class Decoder(nn.Module):
    """Text decoder with a tied embedding."""

    def __init__(self, sizes: WhisperConfig) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Parameter(torch.zeros(sizes.decoder_context, sizes.width))
        self.layers = nn.ModuleList(DecoderLayer(sizes) for _ in range(sizes.decoder_layers))
        self.norm = nn.LayerNorm(sizes.width)

    def layer(self, index: int) -> DecoderLayer:
        """One layer, typed."""
        layer = self.layers[index]
        assert isinstance(layer, DecoderLayer)
        return layer

    def cross(self, hidden: Tensor) -> Cache:
        """Cross keys and values of each layer from hidden states [B, F, width]."""
        return [self.layer(index).cross(hidden) for index in range(self.sizes.decoder_layers)]

    def forward(self, ids: Tensor, past: Cache, cross: Cache) -> tuple[Tensor, Cache]:
        """ids [B, T] after the past -> logits [B, vocabulary] of the last one, the longer cache."""
        start = past[0][0].shape[2]
        x = self.embedding(ids) + self.positions[start : start + ids.shape[1]]
        grown = []
        for index in range(self.sizes.decoder_layers):
            x, kept = self.layer(index).step(x, past[index], cross[index])
            grown.append(kept)
        return self.norm(x[:, -1]) @ self.embedding.weight.T, grown

    def empty(self, batch: int) -> Cache:
        """A cache without positions."""
        nothing = torch.zeros(batch, self.sizes.heads, 0, self.sizes.head_width)
        return [(nothing, nothing)] * self.sizes.decoder_layers

    @torch.no_grad()
    def greedy(
        self, hidden: Tensor, prompt: Sequence[int], *, end: int, limit: int = 60
    ) -> list[int]:
        """The most likely ids for hidden states [1, F, width], without `end`."""
        cross, past, tokens = self.cross(hidden), self.empty(1), list[int]()
        ids = torch.tensor([list(prompt)])
        while len(tokens) < limit:
            logits, past = self(ids, past, cross)
            token = int(logits[0].argmax())
            if token == end:
                break
            tokens.append(token)
            ids = torch.tensor([[token]])
        return tokens
