"""The stub processes of a server: each serves one model, and the server never brings one back."""

import os
import select
import signal
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from deploy.processes import start_time
from python_backends import siblings


@dataclass(frozen=True)
class Stub:
    """A process, named for good by its pid and its start."""

    model: str
    pid: int
    started: int | None

    @property
    def alive(self) -> bool:
        return self.started is not None and start_time(self.pid) == self.started


def stubs(server: int, models: Collection[str]) -> list[Stub]:
    """Stubs of the server with this pid, each with the one of `models` that it serves."""
    return [Stub(model, pid, start_time(pid)) for model, pid in siblings.stubs(server, models)]


def kill(stub: Stub) -> None:
    """A hung stub would hold the unloading of its model."""
    if stub.alive:
        with suppress(ProcessLookupError):
            os.kill(stub.pid, signal.SIGKILL)


def wait_for_an_end(some: Sequence[Stub], timeout_s: float) -> bool:
    """Until one of them has ended, or the time is over; whether one has."""
    with ExitStack() as opened:
        poll = select.poll()
        for stub in some:
            try:
                handle = os.pidfd_open(stub.pid)
            except ProcessLookupError:
                return True
            opened.callback(os.close, handle)
            poll.register(handle, select.POLLIN)
        if not all(stub.alive for stub in some):
            return True
        return bool(poll.poll(1000 * timeout_s))
