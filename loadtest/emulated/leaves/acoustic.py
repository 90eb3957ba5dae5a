"""The emulated flow decoder: every velocity evaluation is one pass of the device."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.device import Device, Emulation
from python_backends.bridge import ModelConfig
from python_backends.diffusion_lock.graphs import CONDITION_WIDTH, Call
from python_backends.diffusion_lock.score import BUCKET_FRAMES
from python_backends.diffusion_lock.settings import AcousticSettings
from python_backends.diffusion_lock.source import Voice, Voices
from python_backends.speech import VOICES

F0_MEAN, F0_SPREAD = math.log(150.0), 0.2
ALIKE: Voices = {
    name: Voice(number, F0_MEAN, F0_SPREAD, frame_advance=(0.0, 300.0, 0.0))
    for number, name in enumerate(VOICES)
}


class Acoustic:
    """Is called like `bridge.call`: conditioning is free, a step has the profile's cost.

    No velocity: the noise a piece starts from is what it becomes.
    """

    def __init__(self, emulation: Emulation, device: Device) -> None:
        self._device = device
        self._profile = emulation.profile.stages["acoustic"]
        self._extra_ms = emulation.delays.acoustic_step_ms

    def __call__(
        self, model: str, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        if "CONDITION" in outputs:
            batch, frames = inputs["FRAME_PHONEME"].shape
            return {"CONDITION": np.zeros((batch, frames, CONDITION_WIDTH), np.float32)}
        x = inputs["X"]
        self._device.run("acoustic", len(x), self._cost_ms(len(x), x.shape[1]))
        return {"VELOCITY": np.zeros_like(x)}

    def _cost_ms(self, members: int, frames: int) -> float:
        factor = self._profile.long_factor if frames > BUCKET_FRAMES else 1.0
        return self._profile.cost_ms.ms(members) * factor + self._extra_ms


def load(config: ModelConfig, settings: AcousticSettings) -> tuple[Voices, Call]:
    """Leaf of emu_acoustic."""
    emulation = Emulation.load()
    return ALIKE, Acoustic(emulation, emulation.device("acoustic"))
