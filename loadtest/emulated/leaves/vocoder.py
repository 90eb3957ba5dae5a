"""The emulated vocoder: one pass of the device for whatever waits, up to its largest batch.

It is dynamic batching, which an encoder window of no length is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.device import Device, Emulation
from python_backends.bridge import ModelConfig, Request
from python_backends.encoder_window.leaf import Encoded
from python_backends.encoder_window.settings import EncodeSettings
from python_backends.scheduling.window import NO_COST, Cost
from python_backends.speech import SAMPLE_RATE_HZ

RATE = np.array([[SAMPLE_RATE_HZ]], np.int32)


@dataclass(frozen=True)
class Frames:
    """Stands for a chunk of acoustic frames; all are alike."""

    bucket: int = 0
    silent: bool = False
    cost: Cost = NO_COST
    identity: None = None


class Vocoder:
    """See encoder_window.Leaf."""

    def __init__(self, emulation: Emulation, device: Device) -> None:
        self._device = device
        self._cost = emulation.profile.stages["vocoder"].cost_ms
        piece_ms = emulation.profile.stages["acoustic"].audio_ms_per_piece
        self._speech = np.array([[piece_ms]], np.float32)

    def windows(self, request: Request) -> list[Frames]:
        """See Leaf."""
        request.required("F0")
        return [Frames()]

    def build(self, window: Frames) -> Frames:
        """See Leaf."""
        return window

    def encode(self, built: Sequence[Frames]) -> Encoded:
        """See Leaf."""
        done = self._device.run("vocoder", len(built), self._cost.ms(len(built)))
        return Encoded(list(built), (done.end_ns - done.start_ns) / 1e9)

    def outputs(self, windows: Sequence[Any], results: Sequence[Any]) -> dict[str, NDArray[Any]]:
        """See Leaf. A piece is one chunk, and lasts as long as the profile says."""
        return {"SPEECH": self._speech, "SAMPLE_RATE": RATE}


def load(config: ModelConfig, settings: EncodeSettings) -> Vocoder:
    """Leaf of emu_vocoder."""
    emulation = Emulation.load()
    return Vocoder(emulation, emulation.device("vocoder"))
