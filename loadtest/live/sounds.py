"""Recordings whose first and last speech is known to 10 ms."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from client import audio

Floats = NDArray[np.float32]

SAMPLES = Path(__file__).parents[2] / "samples"
RATE_HZ = audio.HEARD_RATE_HZ
FRAME = RATE_HZ // 100
LOUD = 0.02
"""A frame is speech from this share of the loudest frame's amplitude on: 34 dB below it."""


def trimmed(sound: Floats) -> Floats:
    """A sound [samples] from its first frame of speech to its last; ValueError for silence."""
    frames = sound[: len(sound) // FRAME * FRAME].reshape(-1, FRAME)
    loudness = np.sqrt(np.mean(np.square(frames), axis=1))
    if not frames.size or not loudness.any():
        raise ValueError("a recording without sound")
    loud = np.flatnonzero(loudness >= LOUD * loudness.max())
    return sound[loud[0] * FRAME : (loud[-1] + 1) * FRAME]


def silence(seconds: float) -> Floats:
    """float32 [samples] at 16 kHz."""
    return np.zeros(round(seconds * RATE_HZ), np.float32)


def seconds(sound: Floats) -> float:
    """Of a sound at 16 kHz."""
    return len(sound) / RATE_HZ


def samples() -> list[Floats]:
    """The orders of `samples/`, nothing but speech."""
    names: dict[str, str] = json.loads((SAMPLES / "texts.json").read_text())
    return [trimmed(audio.read(SAMPLES / name)) for name in names]
