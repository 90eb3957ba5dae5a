"""Ragged numpy rows as padded torch batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Padded:
    """B rows of different lengths, padded to the longest."""

    values: Tensor
    """[B, L, ...]."""
    lengths: Tensor
    """int64 [B, 1]."""

    @property
    def mask(self) -> Tensor:
        """float32 [B, L]: 1 on valid positions."""
        return (torch.arange(self.values.shape[1])[None] < self.lengths).float()


def stack_padded(rows: Sequence[NDArray[Any]], fill: int) -> Padded:
    """Stacks rows [L_i, ...] to [B, max L, ...], padded with `fill`."""
    lengths = [len(row) for row in rows]
    stacked = np.full((len(rows), max(lengths), *rows[0].shape[1:]), fill, rows[0].dtype)
    for out, row in zip(stacked, rows, strict=True):
        out[: len(row)] = row
    return Padded(torch.from_numpy(stacked), torch.tensor(lengths)[:, None])
