"""Parameters of `live`."""

from dataclasses import dataclass

from python_backends.listening.settings import ListenSettings


@dataclass(frozen=True, kw_only=True)
class LiveSettings(ListenSettings):
    """Those of `listen`, and how it answers."""

    turn_model: str
    """HEARD and HISTORY to sound: a front door."""

    lead_ms: int
    """An answer is sent so far ahead of being heard at most, unless the caller asks for less."""

    confirm_ms: int
    """So much speech during an answer interrupts it, whatever its words."""

    history_chars: int = 16_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.lead_ms, self.confirm_ms, self.history_chars) < 1:
            raise ValueError("lead_ms, confirm_ms and history_chars must be at least 1")
