"""The flow decoder's schedulers on the device of the diffusion profile, in virtual time.

There a call has a cost of its own beside that of each row, as on a GPU. Nothing is measured: the
figures follow from the profile and the pieces, and are the same on every machine.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.device import Profile
from loadtest.stages.flow_graphs import CONDITION
from loadtest.stages.flow_pieces import (
    KEYS,
    MODES,
    REQUESTS,
    Cell,
    Piece,
    cell_of,
    evaluation_times,
    mode_figures,
    pieces,
    scheduler,
    serve,
    spread,
)
from python_backends.diffusion_lock.graphs import CONDITION_WIDTH
from python_backends.diffusion_lock.score import BUCKET_FRAMES

LOADS = (0.8, 1.5)
"""Of what one piece at a time can bear."""

COUNT = 100
"""Pieces that come at random."""

AT_ONCE = 0.0
"""Instead of a load."""


class DeviceCalls:
    """Is called like `bridge.call`; every velocity call moves the clock, conditions are free."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._stage = Profile.named("profile-diffusion").stages["acoustic"]
        self.max_batch = self._stage.max_batch

    def __call__(
        self, model: str, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        if model == CONDITION:
            shape = (*inputs["FRAME_PHONEME"].shape, CONDITION_WIDTH)
            return {"CONDITION": np.zeros(shape, np.float32)}
        x = inputs["X"]
        self.now_s += self.cost_s(len(x), x.shape[1])
        return {"VELOCITY": np.zeros_like(x)}

    def clock(self) -> float:
        """Virtual seconds."""
        return self.now_s

    def cost_s(self, members: int, frames: int) -> float:
        """Of one velocity call."""
        factor = self._stage.long_factor if frames > BUCKET_FRAMES else 1.0
        return self._stage.cost_ms.ms(members) * factor / 1e3


def on_device(rounds: int) -> dict[str, float | None]:
    """Of each scheduler: first chunk p50 and p95 and pieces/s, and ratios between them."""
    found: dict[str, float | None] = {}
    for keys in KEYS:
        for count, load in (
            *((count, AT_ONCE) for count in REQUESTS),
            *((COUNT, x) for x in LOADS),
        ):
            where = f"{keys}_load_{load:g}" if load else f"{keys}_burst_n{count}"
            cells = {
                mode: [_run(mode, keys, count, load, seed) for seed in range(rounds)]
                for mode in MODES
            }
            for name in ("p50_ms", "p95_ms", "pieces_per_s"):
                values = {mode: [getattr(cell, name) for cell in cells[mode]] for mode in MODES}
                found |= mode_figures("flow_device", where, name, values)
    return found


def _run(mode: str, keys: str, count: int, load: float, seed: int) -> Cell:
    device = DeviceCalls()
    given = pieces(keys, count, seed)
    if load:
        alone_s = [_alone_s(one, device) for one in given]
        spread(given, sum(alone_s) / count / load, seed)
    serve(scheduler(mode, device, device.max_batch), given, device.clock)
    return cell_of(given)


def _alone_s(one: Piece, device: DeviceCalls) -> float:
    assert one.key is not None
    return len(evaluation_times(one.key)) * device.cost_s(1, one.key.frames)
