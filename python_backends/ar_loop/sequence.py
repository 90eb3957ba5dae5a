"""What the loop decodes: sequences, and the tasks that make them out of requests."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from python_backends.bridge import Request
from python_backends.scheduling.prefixes import Match
from python_backends.slot_engine.command import GREEDY, Sampling, Tokens


class Sequence:
    """One member of the batch: a prompt, and what happens to every token drawn after it."""

    def __init__(
        self,
        request: Request,
        prompt: Tokens,
        max_new: int,
        sampling: Sampling = GREEDY,
        context: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        self.request = request
        self.prompt = prompt
        self.max_new = max_new
        self.sampling = sampling
        self.context = context or {}
        self.last = np.zeros_like(prompt[-1])
        """What the next decode step is fed: [] or [width]."""

        self.opens_request = False
        """It is the first one that is computed for its request."""

        self.session = ""
        """Whose next turn begins with what this one's row holds; empty: nobody's."""

        self.shared = 0
        """Tokens that all prompts of its task begin with."""

        self.match: Match | None = None
        """What of the prompt is restored instead of computed."""

    def written(self, length: int) -> list[int]:
        """The first `length` tokens of its row; not asked where there is neither a session nor
        anything shared."""
        raise NotImplementedError

    def advance(self, token: Tokens) -> bool:
        """Take note of a token [width] just drawn; True when it ends the sequence.

        The next step waits for this, so it is cheap: what is fed next goes into `last`, and what
        costs time belongs into `deliver`.
        """
        self.last = token[0]
        return False

    def deliver(self, token: Tokens, score: float, no_speech: float) -> None:
        """Use that token, while the next step is being computed.

        `no_speech` is the engine's probability of silence, with the first token only.
        """
        raise NotImplementedError

    def close(self, reason: str) -> "Work | None":
        """The sequence ended, by "stop" or by "length": answer, or return the work that is left."""
        raise NotImplementedError


Work = Callable[[], Sequence]
"""Makes the sequence that follows one; runs off the loop, so it may call other models."""


class Task(Protocol):
    """Makes sequences of a request, or answers it at once."""

    width: int
    """Numbers per token."""

    def open(self, request: Request) -> list[Sequence]:
        """The sequences to decode for `request`; none if it has been answered. InvalidInput, ..."""

    def abandon(self, turn: str) -> None:
        """A turn was cancelled or failed: answer what was held back for it."""

    def after_step(self, members: int) -> None:
        """A step of so many members has been delivered; the next one is being computed."""


Call = Callable[..., dict[str, NDArray[Any]]]
"""Signature of `bridge.call`."""
