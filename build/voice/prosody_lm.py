"""The prosody LM: an autoregressive model of how long and how high each phoneme is said."""

import math
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from build.voice.layers import PHONEMES, ConvNeXtBlock
from python_backends.speech import DURATIONS, PITCHES, VOICES

WIDTH: Final = 192
HEADS: Final = 4
HEAD_WIDTH: Final = WIDTH // HEADS
LAYERS: Final = 4
MAX_PHONEMES: Final = 512

LEAST_SHARE: Final = 0.1
"""Tokens less likely than the likeliest one times this are never drawn: what makes a high
temperature safe (min-p sampling, Nguyen et al. 2024, arXiv:2407.01082)."""

_ENCODER_BLOCKS: Final = 3
_ENCODER_KERNEL: Final = 7


class Layer(nn.Module):
    """A pre-norm transformer layer with causal self-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.attention_out = nn.Linear(WIDTH, WIDTH)
        self.mlp_norm = nn.LayerNorm(WIDTH)
        self.mlp_in = nn.Linear(WIDTH, 3 * WIDTH)
        self.mlp_out = nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, P, WIDTH] -> same shape; position p attends to 0..p."""
        batch, positions, _ = x.shape
        heads = self.qkv(self.attention_norm(x)).view(batch, positions, 3, HEADS, HEAD_WIDTH)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, positions, WIDTH))
        change: Tensor = self.mlp_out(functional.gelu(self.mlp_in(self.mlp_norm(x))))
        return x + change


class ProsodyLM(nn.Module):
    """Phonemes and what was said of the previous ones -> next duration token, then pitch token.

    One step a phoneme. The phonemes are known in advance: `encode` sees them all, each step adds
    the encoding of its own. The pitch head sees the duration just chosen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phoneme = nn.Embedding(PHONEMES, WIDTH)
        self.encoder = nn.ModuleList(
            ConvNeXtBlock(WIDTH, _ENCODER_KERNEL) for _ in range(_ENCODER_BLOCKS)
        )
        self.previous_duration = nn.Embedding(DURATIONS + 1, WIDTH)
        self.previous_pitch = nn.Embedding(PITCHES + 1, WIDTH)
        self.position = nn.Embedding(MAX_PHONEMES, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.duration_head = nn.Linear(WIDTH, DURATIONS)
        self.chosen_duration = nn.Embedding(DURATIONS, WIDTH)
        self.pitch_head = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, PITCHES)
        )
        self.voice = nn.Embedding(len(VOICES), WIDTH)
        nn.init.zeros_(self.voice.weight)

    def encode(self, phonemes: Tensor, voice: Tensor, mask: Tensor | None = None) -> Tensor:
        """Phoneme ids int64 [B, P], voice int64 [B, 1] -> [B, P, WIDTH]; mask [B, P, 1], 0 on
        padding."""
        h: Tensor = self.phoneme(phonemes) + self.voice(voice)
        mask = torch.ones_like(h[..., :1]) if mask is None else mask
        for block in self.encoder:
            h = block(h, mask)
        return h

    def forward(self, encoded: Tensor, previous: Tensor) -> Tensor:
        """Hidden states [B, P, WIDTH] of all steps at once.

        Args:
            encoded: [B, P, WIDTH].
            previous: int64 [B, P, 2], the previous step's duration and pitch token, each plus one;
                0, 0 at the first step.
        """
        x = encoded + self.previous_duration(previous[..., 0])
        x = x + self.previous_pitch(previous[..., 1])
        x = x + self.position(torch.arange(encoded.shape[1], device=encoded.device))
        for layer in self.layers:
            x = layer(x)
        hidden: Tensor = self.norm(x)
        return hidden

    def duration_logits(self, hidden: Tensor) -> Tensor:
        """[..., WIDTH] -> [..., DURATIONS]."""
        logits: Tensor = self.duration_head(hidden)
        return logits

    def pitch_logits(self, hidden: Tensor, duration: Tensor) -> Tensor:
        """Hidden [..., WIDTH] and the chosen duration tokens int64 [...] -> [..., PITCHES]."""
        logits: Tensor = self.pitch_head(hidden + self.chosen_duration(duration))
        return logits

    @torch.inference_mode()
    def generate(self, phonemes: Tensor, noise: Tensor | None = None, voice: int = 0) -> Tensor:
        """Prosody of one utterance, without a cache: the reference for the step graphs.

        Args:
            phonemes: int64 [P].
            noise: [P, DURATIONS + PITCHES], Gumbel noise scaled by the temperature, added to the
                logits (Gumbel-max sampling); None is greedy.
            voice: place in VOICES.

        Returns:
            int64 [P, 2], duration and pitch tokens.
        """
        encoded = self.encode(phonemes[None], torch.tensor([[voice]]))
        count = len(phonemes)
        noise = torch.zeros(count, DURATIONS + PITCHES) if noise is None else noise
        previous = torch.zeros(1, count + 1, 2, dtype=torch.int64)
        for i in range(count):
            hidden = self(encoded[:, : i + 1], previous[:, : i + 1])[0, -1]
            duration = (likely(self.duration_logits(hidden)) + noise[i, :DURATIONS]).argmax()
            pitch = (likely(self.pitch_logits(hidden, duration)) + noise[i, DURATIONS:]).argmax()
            previous[0, i + 1] = torch.stack([duration, pitch]) + 1
        return previous[0, 1:] - 1


def likely(logits: Tensor) -> Tensor:
    """Logits [..., N] with minus infinity for tokens that are never drawn, see LEAST_SHARE."""
    least = logits.amax(-1, keepdim=True) + math.log(LEAST_SHARE)
    return logits.masked_fill(logits < least, -math.inf)
