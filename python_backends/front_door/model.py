"""Triton model class of the front door."""

import os

from python_backends.bridge import ModelConfig, StageBackend
from python_backends.front_door.loop import Door
from python_backends.front_door.settings import DoorSettings


class TritonPythonModel(StageBackend):
    """Relays whole turns. An id may be used again at once: behind the door it is another one."""

    remembers_cancels = False

    def make_loop(self, config: ModelConfig) -> Door:
        settings = config.settings(DoorSettings)
        return Door(settings, os.environ.get("TRISTAGE_GRPC", settings.server))
