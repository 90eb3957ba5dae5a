"""The bytes of a pass: by the frames and the number of its windows, taken before it starts."""

import math
from collections.abc import Iterable, Sequence

from python_backends.encoder_window.leaf import Window
from python_backends.encoder_window.settings import EncodeSettings
from python_backends.errors import InvalidInput
from python_backends.scheduling.bytes import BatchBudget, Usage
from python_backends.scheduling.window import Cost
from python_backends.sizes import RowBytes


class PassBytes:
    """What passes take of `max_batch_bytes`, one at a time."""

    def __init__(self, settings: EncodeSettings) -> None:
        self._law = RowBytes.read(settings.row_bytes)
        self._budget = BatchBudget(settings.max_batch_bytes)

    def cost(self, window: Window) -> Cost:
        """What a window adds to a pass."""
        told = window.cost
        return Cost(told.frames, self._law(told.frames)) if self._law.measured else told

    def check(self, windows: Iterable[Window]) -> None:
        """InvalidInput of a window that no pass may take, however long it waits."""
        for window in windows:
            needed = 0 if window.silent else self.cost(window).nbytes
            if needed > self._budget.limit:
                raise InvalidInput(
                    f"a window of this sound takes {needed:.0f} bytes of a pass; the stage has "
                    f"{self._budget.limit} for one",
                    reason="bytes",
                )

    def begin(self, windows: Sequence[Window]) -> None:
        """A pass over these takes its bytes."""
        self._budget.begin(math.ceil(sum(self.cost(window).nbytes for window in windows)))

    def end(self) -> None:
        """The pass has ended."""
        self._budget.end()

    def usage(self) -> dict[str, Usage]:
        """See BatchBudget."""
        return self._budget.usage()
