"""The convolution block both acoustic networks are made of."""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

PHONEMES: Final = 178
"""Size of hibari's phoneme vocabulary."""


class ConvNeXtBlock(nn.Module):
    """A ConvNeXt block over time (Liu et al. 2022, arXiv:2201.03545), masked, modulated.

    The mask is applied before the convolution, so what lies beyond a row's length never reaches
    its valid part: a row gives the same alone as padded in a batch.

    Args:
        width: channels.
        kernel: taps of the depthwise convolution, odd.
        modulation: width of the vector that scales and shifts the normalised activations
            (adaptive layer norm, Peebles and Xie 2023, arXiv:2212.09748); None for a plain norm.
    """

    def __init__(self, width: int, kernel: int, modulation: int | None = None) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.LayerNorm(width, elementwise_affine=modulation is None)
        self.expand = nn.Linear(width, 3 * width)
        self.contract = nn.Linear(3 * width, width)
        self.gain = nn.Parameter(torch.full((width,), 0.1))
        self.modulate = None if modulation is None else _zeroed(modulation, 2 * width)

    def forward(self, x: Tensor, mask: Tensor, modulation: Tensor | None = None) -> Tensor:
        """x [B, T, width], mask [B, T, 1] of 0 and 1, modulation [B, 1, M] -> [B, T, width]."""
        h: Tensor = self.depthwise((x * mask).transpose(1, 2)).transpose(1, 2)
        h = self.norm(h)
        if self.modulate is not None:
            scale, shift = self.modulate(modulation).chunk(2, -1)
            h = h * (1 + scale) + shift
        h = self.contract(functional.gelu(self.expand(h)))
        return x + self.gain * h


def _zeroed(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
