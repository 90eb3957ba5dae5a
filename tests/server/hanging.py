"""An emulated engine that deadlocks under load; of a release that has to be taken back."""

import threading
from typing import Final

from loadtest.emulated.leaves import engine
from python_backends.ar_loop.settings import LoopSettings
from python_backends.bridge import ModelConfig
from python_backends.slot_engine.command import Command, Result, StepEngine

LOADED: Final = "loadtest.emulated.leaves.engine:load"
HANGING: Final = f"{__name__}:load"


class Hanging:
    """It serves one at a time, and nobody any more once there are two."""

    def __init__(self, inner: StepEngine) -> None:
        self._inner = inner

    def run(self, command: Command) -> Result:
        """See StepEngine."""
        rows = 0 if command.decode is None else len(command.decode.tokens)
        if rows + (command.prefill is not None) + len(command.joins) > 1:
            threading.Event().wait()
        return self._inner.run(command)


def load(config: ModelConfig, settings: LoopSettings) -> Hanging:
    """See python_backends.ar_loop.settings."""
    return Hanging(engine.load(config, settings))
