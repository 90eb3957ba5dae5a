"""Work between two sequences of one request: it is done off the loop, the request stays open."""

from concurrent.futures import Future
from dataclasses import dataclass

from python_backends.ar_loop.sequence import Sequence, Work
from python_backends.bridge import Request
from python_backends.errors import StageError


@dataclass(eq=False)
class FollowUp:
    """Work between two sequences of one request, done off the loop."""

    request: Request
    work: Work
    error: StageError | None = None
    """What its request will be failed with as soon as the work has returned."""

    def run(self) -> Sequence:
        """The work, unless its request is lost already."""
        self.check()
        return self.work()

    def check(self) -> None:
        """Raise the error of a request that is lost."""
        if self.error is not None:
            raise self.error


@dataclass(frozen=True)
class Followed:
    """News that it is done, well or not."""

    follow_up: FollowUp
    done: "Future[Sequence]"
