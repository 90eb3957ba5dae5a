"""Bytes of a stage's open requests, under the budget that it declares for them."""

from python_backends.bridge.request import Request
from python_backends.declared import Declared
from python_backends.errors import InvalidInput, Overloaded
from python_backends.scheduling.bytes import UNBOUNDED, ByteBudget, OverBudget, Usage

PART = "requests"
RETRY_AFTER_MS = 250
"""Room comes with every request that ends."""


class RequestBytes:
    """Taken when a request arrives, given back when it has ended, by one thread at a time."""

    def __init__(self, declared: Declared) -> None:
        self._limit = declared.requests or UNBOUNDED
        self._per_input = declared.per_input
        self._budget = ByteBudget(self._limit, {PART: self._limit})
        self._held: dict[Request, int] = {}

    @property
    def most_input(self) -> int:
        """Bytes of the inputs that one request may have if there is no other."""
        return self._limit // self._per_input

    def take(self, request: Request) -> None:
        """For the inputs of a request, and what is made of them. InvalidInput when it could never
        be let in, Overloaded when it cannot now, both with the reason "bytes"."""
        needed = self._per_input * request.input_bytes
        try:
            self._budget.take(PART, needed)
        except OverBudget as over:
            told = f"this request takes {needed} bytes"
            if over.never_fits:
                most = f"{told}; open requests may take {over.declared} here"
                raise InvalidInput(most, reason="bytes") from over
            raise Overloaded(
                f"{told}; {over.free} of the {over.declared} for open requests are free",
                reason="bytes",
                retry_after_ms=RETRY_AFTER_MS,
            ) from over
        self._held[request] = needed

    def give_back(self, request: Request) -> None:
        """It has ended, or was never let in."""
        self._budget.give_back(PART, self._held.pop(request, 0))

    def usage(self) -> Usage:
        """Now and at most."""
        return self._budget.usage()[PART]
