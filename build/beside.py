"""Something long in a process of its own, while this one does something else."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from build.errors import BuildError


@contextmanager
def beside(command: Sequence[str], log: Path, what: str) -> Iterator[None]:
    """Runs `command` during the block and is left when both have ended; all it says goes to `log`.

    It ends with a block that fails. Raises BuildError when the command fails.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"{what}, beside it: tail -f {log}")
    with log.open("w") as kept, _started(command, kept.fileno()) as process:
        try:
            yield
        except BaseException:
            process.terminate()
            raise
        if process.poll() is None:
            print(f"{what}: still under way")
    if process.returncode:
        raise BuildError(f"{what}: failed with exit code {process.returncode}; see {log}")


def _started(command: Sequence[str], output: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
