"""The rules by name."""

from loadtest.baselines.monolith.locked import DiffusionScript, LockedRule
from loadtest.baselines.monolith.room import Limits
from loadtest.baselines.monolith.steps import Script, StepRule
from loadtest.baselines.monolith.turns import Rule
from loadtest.device.profile import Profile

RULES = ("steps", "locked")


def make(name: str, profile: Profile, think: tuple[int, ...], limits: Limits) -> Rule:
    """A rule for a profile's turns; `think` is the think steps of each piece of an answer."""
    if name == "steps":
        return StepRule(Script.of(profile, think), limits)
    if name == "locked":
        return LockedRule(DiffusionScript.of(profile, think), limits)
    raise ValueError(f"rule {name!r}; {RULES} are known")
