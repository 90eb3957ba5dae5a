"""Run a talkative command behind one line: `python3 deploy/one_line.py TITLE LOG COMMAND ...`.

At a terminal the line shows the seconds and what the command says last; elsewhere it is printed
once. All output goes to LOG; when the command fails, its end is shown and its exit code returned.
Standard library only: it installs the rest.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

TAIL = 25


def run(title: str, log: Path, command: list[str]) -> int:
    """Exit code of the command."""
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    _show(f"{title} ...", end="\n" if not sys.stderr.isatty() else "")
    with (
        log.open("w") as kept,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            kept.write(line)
            if sys.stderr.isatty():
                _show(f"{title} {time.monotonic() - began:.0f} s: {line.strip()}", end="")
    code = process.returncode
    if code:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL:])
        _show(f"{title}: failed with exit code {code}; all of it is in {log}\n{tail}")
    else:
        _show(f"{title}: done in {time.monotonic() - began:.0f} s")
    return code


def _show(text: str, end: str = "\n") -> None:
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        text = "\r\033[K" + (text[:width] if not end else text)
    print(text, end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
