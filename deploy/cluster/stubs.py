"""The stub processes of a server: each serves one model, and the server never brings one back."""

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

import psutil

from deploy.processes import start_time

STUB = "triton_python_backend_stub"


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
    found = []
    for process in _children(server):
        model = _served(_command(process), models)
        if model is not None:
            found.append(Stub(model, process.pid, start_time(process.pid)))
    return found


def kill(stub: Stub) -> None:
    """A hung stub would hold the unloading of its model."""
    if stub.alive:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(stub.pid).kill()


def _served(command: list[str], models: Collection[str]) -> str | None:
    """The name of an instance stands on its command line: the model's, and two numbers."""
    if not command or STUB not in command[0]:
        return None
    instances = (re.fullmatch(r"(.+?)(?:_\d+){1,2}", word) for word in command[1:])
    named = [found[1] for found in instances if found]
    return next((name for name in named if name in models), None)


def _children(server: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(server).children(recursive=True))
    except psutil.Error:
        return []


def _command(process: psutil.Process) -> list[str]:
    """A process that has ended has none."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
