"""A profile's times in seconds."""

from dataclasses import dataclass

from loadtest.device.profile import Profile


@dataclass(frozen=True)
class Costs:
    """Device time of every stage and host time of every step."""

    profile: Profile
    speed: float = 1.0
    """The device's; host work does not change with it."""

    def pass_s(self, stage: str, members: int, factor: float = 1.0) -> float:
        """One pass of a stage with `members`."""
        return factor * self.profile.stages[stage].cost_ms.ms(members) / 1000 / self.speed

    def host_s(self, members: int) -> float:
        """Host work of one step, or of one round, with `members`."""
        own = self.profile.monolith
        return (own.host_gap_ms_total + own.gap_per_member_ms * members) / 1000
