"""A profile: what every stage costs on the emulated device, and the monolith's rule."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.device.strict import from_json

FOLDER = Path(__file__).parent / "profiles"


@dataclass(frozen=True)
class StageCost:
    """Of one pass, affine in its members."""

    base: float
    per_item: float

    def ms(self, members: int) -> float:
        """Milliseconds of a pass with `members` items in its batch."""
        return self.base + self.per_item * members


@dataclass(frozen=True)
class StageProfile:
    """One stage; fields that its kind does not have are zero or empty."""

    kind: str
    cost_ms: StageCost
    max_batch: int
    window_ms: float = 0.0
    build_ms: float = 0.0
    steps: int = 0
    steps_per_chunk: int = 0
    audio_ms_per_step: float = 0.0
    steps_per_piece: tuple[int, ...] = ()
    """Steps between the pieces of a turn; empty: one piece, after all steps."""

    buckets: Mapping[str, str] = field(default_factory=dict)
    long_factor: float = 1.0
    """A pass of the long bucket costs this many times a short one."""

    audio_ms_per_piece: float = 0.0


@dataclass(frozen=True)
class MonolithProfile:
    """One loop for everything."""

    max_running: int
    host_gap_ms_total: float
    encoder_batch: int
    admissions_per_round: int
    rule: str
    gap_per_member_ms: float = 0.0
    """Host work that each running member adds to every step."""


@dataclass(frozen=True)
class DeviceProfile:
    """What the costs are costs on."""

    exclusive: bool
    comment: str = ""


@dataclass(frozen=True)
class ClientProfile:
    """How people behave."""

    timeout_s: float = 6.0
    think_time_ms: float = 0.0


@dataclass(frozen=True)
class Profile:
    """As `profiles/*.json`; two of them are the seed's, word for word."""

    device: DeviceProfile
    stages: Mapping[str, StageProfile]
    monolith: MonolithProfile
    concurrency: tuple[int, ...]
    client: ClientProfile = ClientProfile()
    assumptions: tuple[str, ...] = ()
    """Of a fitted profile."""

    @classmethod
    def read(cls, path: Path) -> "Profile":
        """ValueError names what is unknown, missing or of the wrong type."""
        return from_json(cls, json.loads(path.read_text()), str(path))

    @classmethod
    def named(cls, name: str) -> "Profile":
        """One of `profiles/`: "profile", "profile-diffusion"."""
        return cls.read(FOLDER / f"{name}.json")
