"""Emulated listening: one window a request, one pass of the device a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from loadtest.device import Device, Emulation
from loadtest.device.sleep import sleep_ms
from python_backends.bridge import ModelConfig, Request
from python_backends.bridge.tensors import text
from python_backends.encoder_window.leaf import Encoded
from python_backends.encoder_window.settings import EncodeSettings
from python_backends.errors import InvalidInput
from python_backends.scheduling.window import NO_COST, Cost

HEARD = "(emulated: nothing was really heard)"


@dataclass(frozen=True)
class Shape:
    """Stands for a window of sound."""

    bucket: int
    token: int = 0
    silent: bool = False
    cost: Cost = NO_COST
    identity: None = None


class Listen:
    """See encoder_window.Leaf. AUDIO[0, 0], rounded, is the shape bucket; AUDIO[0, 1], where it is
    not 0, a number that is "heard": it tells whose answer an answer is."""

    def __init__(self, emulation: Emulation, device: Device) -> None:
        self._device = device
        self._profile = emulation.profile.stages["listen"]
        self._delays = emulation.delays

    def windows(self, request: Request) -> list[Shape]:
        """See Leaf."""
        sound = request.required("AUDIO")
        if not sound.size:
            raise InvalidInput("AUDIO has no samples; the first one names the shape bucket")
        sleep_ms(self._delays.window_ms)
        token = round(float(sound.flat[1])) if sound.size > 1 else 0
        return [Shape(round(float(sound.flat[0])), token)]

    def build(self, window: Shape) -> Shape:
        """See Leaf."""
        sleep_ms(self._profile.build_ms + self._delays.build_ms)
        return window

    def encode(self, built: Sequence[Shape]) -> Encoded:
        """See Leaf."""
        cost_ms = self._profile.cost_ms.ms(len(built)) + self._delays.encoder_pass_ms
        done = self._device.run("listen", len(built), cost_ms)
        return Encoded(list(built), (done.end_ns - done.start_ns) / 1e9)

    def outputs(self, windows: Sequence[Any], results: Sequence[Any]) -> dict[str, NDArray[Any]]:
        """See Leaf."""
        sleep_ms(self._delays.transport_ms)
        token = windows[0].token
        return {"HEARD": text(f"token {token}" if token else HEARD)}


def load(config: ModelConfig, settings: EncodeSettings) -> Listen:
    """Leaf of emu_listen."""
    emulation = Emulation.load()
    return Listen(emulation, emulation.device("listen"))
