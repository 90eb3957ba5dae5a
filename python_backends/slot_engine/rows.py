"""What runs the step graph of an engine: on a CPU (`HostRows`) or on a GPU (`DeviceRows`)."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from python_backends.slot_engine.command import Decode, Drawn, Prefill
from python_backends.slot_engine.pools import Pools

Drawing = Callable[[], Drawn]
"""What was drawn; to be asked for behind the command."""

First = Callable[[], tuple[Drawn | None, float]]
"""Likewise of a prompt: nothing but behind its last chunk; Whisper's probability of silence."""


@dataclass(frozen=True)
class Rules:
    """generation.json of a step graph."""

    suppress: tuple[int, ...] = ()
    """Tokens that are never drawn."""

    suppress_first: tuple[int, ...] = ()
    """Nor as a row's first token."""

    no_speech: int | None = None
    """The token of Whisper that says silence; engines that have it keep scores."""

    context_widths: tuple[int, ...] = ()
    """Of context pools, where the graph leaves them open."""

    @classmethod
    def of(cls, told: dict[str, Any]) -> "Rules":
        """From JSON, which tells loops more than that."""
        return cls(
            tuple(told.get("suppress", ())),
            tuple(told.get("suppress_first", ())),
            told.get("no_speech"),
            tuple(told.get("context_widths", ())),
        )


class Rows(Protocol):
    """Pools of rows, and the graph that appends to them and draws."""

    width: int
    """Numbers per token."""

    vocabulary: int | None
    """None: the graph draws inside, and knows neither penalty nor bias."""

    longest_chunk: int
    """Tokens of a prompt that one run takes."""

    pools: Pools

    def command(self) -> AbstractContextManager[None]:
        """Everything of one command happens inside; behind it what was drawn is known."""

    def prefill(self, part: Prefill) -> First:
        """Run a chunk of a prompt. StageFailed when the graph fails."""

    def decode(self, part: Decode) -> Drawing:
        """Run one step of rows 0..n-1. StageFailed when the graph fails."""

    def scrub(self, row: int) -> None:
        """Zero a row whose numbers became non-finite; behind the command."""

    def logits(self, row: int) -> NDArray[np.float32]:
        """[vocabulary], as a row last drew from. StageFailed for a graph that draws inside."""
