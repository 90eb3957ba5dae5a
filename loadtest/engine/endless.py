"""A task for `think` whose answers never end by themselves, and that writes down every step.

`LoopSettings.task`: "loadtest.engine.endless:load". Answers are as long as their callers asked for,
so that a number of rows stays together; what is done for a token is what the product does.
"""

import functools
from collections.abc import Callable

from loadtest.engine.step_trace import writer
from python_backends.ar_loop.sequence import Task
from python_backends.ar_loop.settings import LoopSettings
from python_backends.ar_loop.tasks.converse import Converse
from python_backends.bridge import ModelConfig
from python_backends.bridge.events import now_ns


class Endless(Converse):
    """The product's task, but no token ends an answer."""

    def is_end(self, token: int) -> bool:
        """See Converse."""
        return False

    def after_step(self, members: int) -> None:
        """See Task."""
        super().after_step(members)
        _writer()(now_ns(), members)


@functools.cache
def _writer() -> Callable[[int, int], None]:
    return writer()


def load(config: ModelConfig, settings: LoopSettings) -> Task:
    """What `task` names."""
    return Endless.load(config, settings)
