"""Become a command that ends with its parent: `python -I -S leash.py PARENT CORES COMMAND ...`.

A process of its own instead of `preexec_fn`: the launcher may have threads (gRPC, pytest), and code
between fork and exec may then deadlock. PARENT 0 means no leash; CORES ("0,2") are those that the
command may use, "all" leaves them as they are.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def command(words: Sequence[str], cores: str = "all") -> list[str]:
    """These words as a command that ends with this process."""
    start = [sys.executable, "-I", "-S", __file__, str(os.getpid()), cores]
    return [*start, *words]


def main() -> None:
    """Ask the kernel for SIGTERM at the death of the parent's thread, then exec."""
    parent, cores, *command = sys.argv[1:]
    if int(parent):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):
            sys.exit("the parent ended before its server began")
    if cores != "all":
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
