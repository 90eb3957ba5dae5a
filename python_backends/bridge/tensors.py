"""Tensors as the stages see them.

The stub fills `triton_python_backend_utils` only after importing the model, so its names are used
inside functions alone; annotations must stay unevaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray


@dataclass(frozen=True)
class Array:
    """A tensor, wherever it lives. Stages read `host`; only code for a device reads more."""

    name: str
    values: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def device(self) -> str:
        return "cpu"

    @property
    def host(self) -> NDArray[Any]:
        """The values in host memory, owned by this process."""
        return self.values


def to_array(tensor: pb_utils.Tensor) -> Array:
    """A copy that outlives the request: the server's own buffer is reused after `execute()`."""
    return Array(tensor.name(), tensor.as_numpy().copy())


def size_of(tensor: pb_utils.Tensor) -> int:
    """Bytes of its values; of strings without their lengths."""
    values = tensor.as_numpy()
    return sum(map(len, values.flat)) if values.dtype == np.object_ else values.nbytes


def to_tensors(outputs: Mapping[str, NDArray[Any]]) -> list[pb_utils.Tensor]:
    """Named values as Triton tensors; BYTES tensors are object arrays of bytes."""
    return [pb_utils.Tensor(name, np.ascontiguousarray(values)) for name, values in outputs.items()]


def text(*lines: str) -> NDArray[np.object_]:
    """A BYTES tensor [1, len(lines)] of UTF-8 strings."""
    return np.array([[line.encode() for line in lines]], dtype=np.object_)
