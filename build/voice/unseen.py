"""Forty sentences no trainer sees, by which the voice is measured: agent replies, then general."""

from build.voice.weights import FOLDER

SENTENCES: tuple[str, ...] = tuple((FOLDER / "unseen.txt").read_text("utf-8").splitlines())
