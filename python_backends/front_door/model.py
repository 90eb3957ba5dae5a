"""Triton model class of the front door."""

import os
from typing import Any

from python_backends.bridge import ModelConfig, StageBackend, Wake
from python_backends.errors import StageFailed
from python_backends.front_door.loop import Door, Drain
from python_backends.front_door.settings import DoorSettings


class TritonPythonModel(StageBackend):
    """Relays whole turns. An id may be used again at once: behind the door it is another one.

    Two orders more than other stages have: {"drain": true}, take no more turns; {"open": turn id},
    which fails unless that turn is here.
    """

    remembers_cancels = False

    def make_loop(self, config: ModelConfig) -> Door:
        settings = config.settings(DoorSettings)
        address = os.environ.get("TRISTAGE_GRPC", settings.server)
        self._door = Door(settings, address, meters=self.meters)
        return self._door

    def obey(self, order: Any) -> bool:
        """See StageBackend."""
        match order:
            case {"drain": True}:
                self.tell(Wake(Drain()))
            case {"open": str(turn)}:
                if not self._door.is_open(turn):
                    raise StageFailed("no such turn is open here", turn=turn, reason="ended")
            case _:
                return False
        return True
