"""What is windowed: how a request becomes windows, and what one pass of the encoder is."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from python_backends.bridge import Request
from python_backends.scheduling.window import Cost


class Window(Protocol):
    """A part of a request that takes one place in a batch."""

    @property
    def bucket(self) -> Hashable:
        """Windows of one bucket may share a pass."""

    @property
    def silent(self) -> bool:
        """It costs no pass at all."""

    @property
    def cost(self) -> Cost:
        """What it adds to a batch."""

    @property
    def identity(self) -> Hashable | None:
        """Equal for windows that give equal results; None: taken to be like no other one."""


@dataclass(frozen=True)
class Encoded:
    """What a pass gave."""

    outcomes: list[Any]
    """For each window its result, or the StageError of that one."""

    device_s: float
    """How long it held the device, waiting for it not counted: what it costs everybody else."""


class Leaf(Protocol):
    """The encoder behind the window. `windows` and `outputs` run on the loop's thread, `build` on
    its workers, `encode` on its encoder thread while requests are open."""

    def windows(self, request: Request) -> Sequence[Window]:
        """The request, checked and split. Raises InvalidInput."""

    def build(self, window: Any) -> Any:
        """Features of one window."""

    def encode(self, built: Sequence[Any]) -> "Encoded":
        """One pass over the features of several windows."""

    def outputs(self, windows: Sequence[Any], results: Sequence[Any]) -> dict[str, NDArray[Any]]:
        """The answer, without EVENTS; the result of a silent window is None."""
