"""The threads behind the encoder's loop: some make features, one runs passes."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from python_backends.bridge import Inbox, Wake, log_fault
from python_backends.encoder_window.clip import Work
from python_backends.encoder_window.leaf import Encoded, Leaf, Window
from python_backends.errors import StageError, StageFailed
from python_backends.scheduling.window import Release


@dataclass(frozen=True)
class Features:
    """What a build gave, and when it was built."""

    values: Any
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Built:
    """A build has ended."""

    work: Work
    outcome: Features | StageError


@dataclass(frozen=True)
class Passed:
    """A pass has ended. `done` raises what ended it, if that is a bug."""

    batch: Release[Hashable, Work]
    done: "Future[Encoded]"


class Workers:
    """A context manager: its threads end with it. What they have done wakes `inbox`."""

    def __init__(
        self, leaf: Leaf, inbox: Inbox, clock: Callable[[], float], build_workers: int
    ) -> None:
        self._leaf = leaf
        self._inbox = inbox
        self._clock = clock
        self._builders = ThreadPoolExecutor(build_workers, "build")
        self._passes = ThreadPoolExecutor(1, "encoder")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._passes.shutdown()
        self._builders.shutdown()

    def build(self, work: Work) -> None:
        """Have its features made; Built follows."""
        future = self._builders.submit(self._features, work.window)
        future.add_done_callback(partial(self._built, work))

    def encode(self, batch: Release[Hashable, Work]) -> None:
        """Have a batch encoded; Passed follows."""
        future = self._passes.submit(self._leaf.encode, [work.built for work in batch.items])
        future.add_done_callback(lambda done: self._inbox.put(Wake(Passed(batch, done))))

    def _features(self, window: Window) -> Features:
        start_s = self._clock()
        return Features(self._leaf.build(window), start_s, self._clock())

    def _built(self, work: Work, done: "Future[Features]") -> None:
        fault = done.exception()
        outcome = done.result() if fault is None else _failed_build(fault)
        self._inbox.put(Wake(Built(work, outcome)))


def _failed_build(fault: BaseException) -> StageError:
    """Of that one window, whatever it was: others in its batch are none the worse for it."""
    if isinstance(fault, StageError):
        return fault
    log_fault("features of a sound could not be made", fault)
    return StageFailed("features of this sound could not be made")
