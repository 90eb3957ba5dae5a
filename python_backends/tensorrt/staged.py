"""Small arrays that travel between host and device as one copy."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.tensorrt.device import Device
from python_backends.tensorrt.runtime import ALIGNMENT, Shape


class Staged:
    """Arrays of one layout (name to shape and dtype), once in page-locked memory of the host and
    once on the device. Neither moves: graphs hold their addresses."""

    def __init__(self, device: Device, layout: Mapping[str, tuple[Shape, str]]) -> None:
        places, size = {}, 0
        for name, (shape, dtype) in layout.items():
            places[name] = size
            nbytes = math.prod(shape) * np.dtype(dtype).itemsize
            size += -(-nbytes // ALIGNMENT) * ALIGNMENT
        self._here = device.page_locked(size)
        self._there = device.zeros((size,), "uint8")
        self.host: dict[str, NDArray[Any]] = {}
        self.device: dict[str, Any] = {}
        for name, (shape, dtype) in layout.items():
            kind = getattr(device.torch, dtype)
            part = slice(places[name], places[name] + math.prod(shape) * kind.itemsize)
            self.host[name] = self._here[part].view(kind).view(shape).numpy()
            self.device[name] = self._there[part].view(kind).view(shape)

    def send(self) -> None:
        """To the device."""
        self._there.copy_(self._here, non_blocking=True)

    def fetch(self) -> None:
        """To the host, where it lies once the stream has been waited for."""
        self._here.copy_(self._there, non_blocking=True)
