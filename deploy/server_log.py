"""What a server's log tells about its start."""

import os
import re
from pathlib import Path

LOADED = re.compile(r"successfully loaded '([^']+)'")
LOAD_FAILED = re.compile(r"failed to load '([^']+)' version \d+: ((?:(?!\\n\\nAt:)[^\n])+)")
STARTED = re.compile(r"Started (?:GRPCInferenceService|HTTPService|Metrics Service) at")
PORT_LOST = re.compile(r"failed to start .* service: .*already in use")
NOISE = re.compile(r"[+|]|\s*<frozen importlib")


class ServerLog:
    """A log file, perhaps still growing."""

    def __init__(self, path: Path = Path(os.devnull)) -> None:
        self.path = path

    def text(self) -> str:
        """All of it; nothing of a log that was removed because newer ones came."""
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
