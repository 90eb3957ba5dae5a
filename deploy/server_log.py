"""A server's log file: what it tells about a start, and how long it may become."""

import os
import re
import threading
import time
from pathlib import Path
from typing import BinaryIO, Final

MOST_BYTES: Final = 64 << 20
"""Of the file, and as many of the part that is kept beside it."""

LOADED = re.compile(r"successfully loaded '([^']+)'")
LOAD_FAILED = re.compile(r"failed to load '([^']+)' version \d+: ((?:(?!\\n\\nAt:)[^\n])+)")
STARTED = re.compile(r"Started (?:GRPCInferenceService|HTTPService|Metrics Service) at")
PORT_LOST = re.compile(r"failed to start .* service: .*already in use")
NOISE = re.compile(r"[+|]|\s*<frozen importlib")
_PIECE: Final = 1 << 20
_LONG_LINE: Final = 1 << 16
_WAITS: Final = 5
_WAIT_S: Final = 0.002


def earlier(path: Path) -> Path:
    """Where the last part of a log is kept when it is cut."""
    return path.with_name(f"{path.name}.1")


class ServerLog:
    """A log file, perhaps still growing."""

    def __init__(self, path: Path = Path(os.devnull)) -> None:
        self.path = path
        self.lock = threading.Lock()
        """Held while the file is cut, and while a Tail reads."""

        self.cuts = 0
        self.begins = 0
        """Where in the file, as it was before the last cut, the part begins that was kept."""

    def bound(self, most_bytes: int = MOST_BYTES) -> bool:
        """Cut a file that has grown longer: its last `most_bytes` replace `earlier`, and it begins
        anew; whether it was cut.

        The server has inherited the file, so it cannot be given another one; it appends (O_APPEND)
        and goes on at the new end. What it writes between the last read here and the cut, less
        than a millisecond later, is lost. Where the disk has no room for a copy nothing is kept.
        """
        try:
            if self.path.stat().st_size <= most_bytes:
                return False
            with self.lock, self.path.open("r+b") as file:
                self.begins = self._keep(file, most_bytes)
                file.truncate(0)
                self.cuts += 1
        except FileNotFoundError:
            return False
        return True

    def _keep(self, file: BinaryIO, most_bytes: int) -> int:
        """Copy the last part, from where a line begins; where that is."""
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most_bytes))
        if size > most_bytes:
            file.readline(_LONG_LINE)
        begins = file.tell()
        try:
            with earlier(self.path).open("wb") as kept:
                _copy(file, kept, 2 * most_bytes)
        except OSError:
            earlier(self.path).unlink(missing_ok=True)
            return file.seek(0, os.SEEK_END)
        return begins

    def text(self) -> str:
        """All of it since the last cut; nothing of a log that was removed because newer ones
        came."""
        try:
            return self.path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def tail(self, lines: int = 30) -> str:
        """The last lines, without the server's tables and Python's import frames."""
        told = [line for line in self.text().splitlines() if line and not NOISE.match(line)]
        return "\n".join(told[-lines:])

    def loaded(self) -> list[str]:
        """Models loaded so far, the newest last."""
        return LOADED.findall(self.text())

    def listeners(self) -> int:
        """How many of its ports the server has opened."""
        return len(STARTED.findall(self.text()))

    def lost_a_port(self) -> bool:
        """Somebody else took a port between our look and the server's bind."""
        return PORT_LOST.search(self.text()) is not None

    def account(self, what: str) -> str:
        """A failure for a person: what happened, which models failed and why, the log's end."""
        failures = LOAD_FAILED.findall(self.text())
        reasons = dict.fromkeys(f"model {name!r}: {reason}" for name, reason in failures)
        end = f"the log ends ({self.path}):"
        return "\n".join([what, *reasons, end, self.tail(12)])


def _copy(file: BinaryIO, kept: BinaryIO, most_bytes: int) -> None:
    """All there is, to the end of a line: the rest of one that is just being written is waited for
    a little. It grows meanwhile; about `most_bytes` are copied, so that a flood has an end."""
    waits, last = iter(range(_WAITS)), b"\n"
    while kept.tell() < most_bytes:
        if piece := file.read(_PIECE):
            kept.write(piece)
            last = piece[-1:]
        elif last == b"\n" or next(waits, None) is None:
            return
        else:
            time.sleep(_WAIT_S)


class Tail:
    """Reads a log that grows, piece by piece, over its cuts. For one thread."""

    def __init__(self, log: ServerLog) -> None:
        self._log = log
        self._at = 0
        self._cuts = log.cuts

    def read(self) -> tuple[bytes, bool]:
        """What is new, 1 MiB at most; and whether something before it is missing, since the log was
        cut twice, or by more than is kept, before it was read."""
        log = self._log
        with log.lock:
            behind = log.cuts - self._cuts
            misses = behind > 1 or (behind == 1 and self._at < log.begins)
            if misses:
                self._cuts, self._at = log.cuts - 1, log.begins
            if self._cuts < log.cuts:
                if piece := self._piece(earlier(log.path), self._at - log.begins):
                    return piece, misses
                self._cuts, self._at = log.cuts, 0
            return self._piece(log.path, self._at), misses

    def _piece(self, path: Path, at: int) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(at)
                found = file.read(_PIECE)
        except FileNotFoundError:
            return b""
        self._at += len(found)
        return found
