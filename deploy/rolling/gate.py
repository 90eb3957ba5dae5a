"""A command that decides whether a version is let in."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TextIO

from deploy import leash
from deploy.errors import UpgradeFailed

TIMEOUT_S: Final = 600.0
LOOK_S: Final = 0.2
LAST_LINES_S: Final = 1.0
"""For what a gate has written last, which a process that it has left behind may hold open."""


def pass_gate(
    command: str,
    told: Mapping[str, str],
    tell: Callable[[str], None],
    look: Callable[[], None],
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Run a shell command with `told` in its environment, and tell each line that it writes.

    UpgradeFailed unless it ends with 0 in time; whatever `look` raises meanwhile ends it. It and
    what it has started are ended, as they are a session of their own; the shell ends with us, too.
    """
    gate = subprocess.Popen(
        leash.command(["/bin/sh", "-c", command]),
        env={**os.environ, **told},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    assert gate.stdout is not None
    reader = threading.Thread(target=_pass_on, args=(gate.stdout, tell), daemon=True)
    reader.start()
    try:
        code = _ended(gate, look, timeout_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(gate.pid, signal.SIGKILL)
        gate.wait()
        reader.join(LAST_LINES_S)
    if code:
        raise UpgradeFailed(f"its gate ended with {code}: {command}")


def _ended(gate: "subprocess.Popen[str]", look: Callable[[], None], timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    while True:
        with suppress(subprocess.TimeoutExpired):
            return gate.wait(LOOK_S)
        look()
        if time.monotonic() > deadline:
            raise UpgradeFailed(f"its gate took more than {timeout_s:g} s")


def _pass_on(lines: TextIO, tell: Callable[[str], None]) -> None:
    with lines:
        for line in lines:
            tell(f"gate: {line.rstrip()}")
