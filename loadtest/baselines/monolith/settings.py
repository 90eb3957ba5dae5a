"""Parameters of a monolith."""

from dataclasses import dataclass

from loadtest.baselines.monolith.room import Limits
from loadtest.baselines.monolith.rules import RULES


@dataclass(frozen=True)
class MonolithSettings:
    """Read from config.pbtxt, strictly. The defaults there are the profile's rule."""

    rule: str
    """"steps" or "locked"."""

    max_running: int
    """Turns between their admission and their last chunk."""

    encoder_batch: int
    """Turns in one encoder pass."""

    admissions_per_round: int
    """Encoder passes in one round; see Limits."""

    gap_hidden: bool
    """Host work of a round is done while the next one is computed, as a tuned monolith would."""

    max_waiting: int
    """Turns that may wait for admission; beyond, new ones are refused."""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule {self.rule!r}; {RULES} are known")
        if self.max_waiting < 1:
            raise ValueError("max_waiting must be at least 1")

    @property
    def limits(self) -> Limits:
        """Of admission. ValueError when one is below 1."""
        return Limits(self.max_running, self.encoder_batch, self.admissions_per_round)
