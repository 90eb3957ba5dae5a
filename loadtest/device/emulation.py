"""The emulation file: what an emulated server's processes are told, by one environment variable.

Each process reads it once, when it loads.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from loadtest.device.device import Device
from loadtest.device.profile import Profile, StageCost
from loadtest.device.strict import from_json

__all__ = ["ENVIRONMENT", "Delays", "Emulation", "Profile", "StageCost", "named"]

ENVIRONMENT = "TRISTAGE_EMULATION"
"""Names the file. Python stubs inherit it from the launcher's process."""


@contextmanager
def named(file: Path) -> Iterator[None]:
    """Name `file` to the processes started inside the block."""
    before = os.environ.get(ENVIRONMENT)
    os.environ[ENVIRONMENT] = str(file)
    try:
        yield
    finally:
        os.environ.pop(ENVIRONMENT)
        if before is not None:
            os.environ[ENVIRONMENT] = before


@dataclass(frozen=True)
class Delays:
    """Known extra delays in ms, to test a ledger with. The first six are of the device and divided
    by `speed`; the others are slept by a host thread."""

    encoder_pass_ms: float = 0.0
    think_step_ms: float = 0.0
    speak_step_ms: float = 0.0
    acoustic_step_ms: float = 0.0
    others_encoder_ms: float = 0.0
    """An encoder pass for nobody who is here, in front of each prompt of think."""

    others_steps_ms: float = 0.0
    """The same, a step of speak."""

    build_ms: float = 0.0
    """While features are built."""

    window_ms: float = 0.0
    """Between arrival at the encoder and the building of features."""

    admission_ms: float = 0.0
    """Between arrival at an AR stage and its joining the batch; it delays arrivals behind it."""

    step_gap_ms: float = 0.0
    """Before every step of an AR stage, on its critical path."""

    transport_ms: float = 0.0
    """After the encoder's pass, before its answer leaves; it delays answers behind it."""


@dataclass(frozen=True)
class Emulation:
    """One emulated experiment."""

    profile: Profile
    devices: Mapping[str, str]
    """Stage -> device file; stages with the same file share that device."""

    speed: float = 1.0
    """All device costs are divided by it."""

    host_gap_ms: float = 4.0
    """Host work per step of a loop."""

    gap_per_member_ms: float = 0.0
    """More host work per step, for each member."""

    spans: str = ""
    """Folder for the host spans of each process; empty: none are written."""

    pieces: int = 1
    """Pieces of an answer, where the profile does not give `steps_per_piece`."""

    delays: Delays = Delays()

    sound: bool = False
    """Speak silence as long as an answer would be, instead of telling how long: for whoever plays
    it."""

    def __post_init__(self) -> None:
        if self.speed <= 0 or self.pieces < 1:
            raise ValueError("speed must be positive and pieces at least 1")

    @classmethod
    def read(cls, path: Path) -> "Emulation":
        """From a file. ValueError names what is unknown, missing or of the wrong type."""
        return from_json(cls, json.loads(path.read_text()), str(path))

    @classmethod
    def load(cls) -> "Emulation":
        """From the file that the environment names; RuntimeError when it names none."""
        path = os.environ.get(ENVIRONMENT)
        if not path:
            raise RuntimeError(f"the environment variable {ENVIRONMENT} names no emulation file")
        return cls.read(Path(path))

    def write(self, path: Path) -> None:
        """Atomically, as `read` takes it."""
        partial = path.with_name(f"{path.name}.partial")
        partial.write_text(json.dumps(asdict(self), indent=2) + "\n")
        os.replace(partial, path)

    def gap_ms(self, members: int) -> float:
        """Host work of a step with `members`."""
        return self.host_gap_ms + self.gap_per_member_ms * members

    def device(self, stage: str) -> Device:
        """Open the device that `stage` computes on; KeyError when it has none."""
        return Device(Path(self.devices[stage]), speed=self.speed)

    @cached_property
    def piece_steps(self) -> tuple[int, ...]:
        """Think steps of each piece of an answer: the profile's, else `pieces` even parts."""
        think = self.profile.stages["think"]
        return think.steps_per_piece or even_parts(think.steps, self.pieces)


def even_parts(total: int, parts: int) -> tuple[int, ...]:
    """`total` as a sum of `parts` numbers that differ by one at most.

    >>> even_parts(75, 4)
    (18, 19, 19, 19)
    """
    ends = [total * part // parts for part in range(parts + 1)]
    return tuple(end - start for start, end in pairwise(ends))
