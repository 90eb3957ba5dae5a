"""One run of the experiment: which system, how many people, which knobs are turned."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EMULATED = ROOT / "loadtest" / "emulated"
BASELINES = ROOT / "loadtest" / "baselines"


@dataclass(frozen=True)
class System:
    """What serves turns: a model, where it is, and the backends it needs besides the product's."""

    model: str
    profile: str
    repository: Path
    backends: tuple[Path, ...] = ()


STAGES = System("emu_turn", "profile", EMULATED)
STAGES_DIFFUSION = System("emu_turn_diffusion", "profile-diffusion", EMULATED)
MONOLITH = System("monolith", "profile", BASELINES / "repository", (BASELINES / "backends",))
MONOLITH_DIFFUSION = System(
    "monolith_diffusion",
    "profile-diffusion",
    BASELINES / "repository",
    (BASELINES / "backends",),
)

Overrides = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Setup:
    """A server and its devices; runs of one setup share them."""

    system: System
    profile: str = ""
    """Another profile than the system's."""

    overrides: tuple[tuple[str, str, str], ...] = ()
    """(model, parameter, value)."""

    apart: tuple[str, ...] = ()
    """Stages with a device of their own; all others share one."""

    speed: float = 1.0
    delays: tuple[tuple[str, float], ...] = ()
    pieces: int = 1

    @property
    def profile_name(self) -> str:
        """Of loadtest/device/profiles or loadtest/profiles."""
        return self.profile or self.system.profile

    def server_overrides(self) -> dict[str, dict[str, str]]:
        """As `deploy.settings.Settings` takes them."""
        found: dict[str, dict[str, str]] = {}
        for model, parameter, value in self.overrides:
            found.setdefault(model, {})[parameter] = value
        return found


@dataclass(frozen=True)
class Experiment:
    """So many people on a setup, for so long."""

    name: str
    series: str
    setup: Setup
    people: int
    seconds: float
    warm_up_s: float
    timeout_s: float | None = None
    """How long callers wait; None: as the profile says."""

    buckets: tuple[int, ...] = (0,)
    kill: str = ""
    """A model whose process is killed in the middle of each `kill_every_s`, and reloaded."""

    kill_every_s: float = 0.0

    knobs: Mapping[str, Any] = field(default_factory=dict)
