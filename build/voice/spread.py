"""How differently a sentence is said twice: durations and F0 over seeds, by temperature."""

from collections.abc import Sequence
from statistics import fmean
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from build.voice.speaker import Speaker
from build.voice.unseen import SENTENCES
from python_backends.diffusion_lock.source import voiced
from python_backends.speech import VOICES

TEXTS: Final = SENTENCES[::17]
SEEDS: Final = 6
POINTS: Final = 40
"""Places at which contours are compared, evenly spread over the sentence."""

_SEMITONES: Final = 12 / np.log(2)


def spreads(temperatures: Sequence[float], progress: Progress) -> dict[str, float]:
    """Standard deviations over seeds, and the voices' mean F0.

    `voice_duration_spread_<temperature>`: of a sentence's duration, as a share of it.
    `voice_f0_spread_<temperature>`: of F0 at the same place of a sentence, in semitones.
    """
    figures = {}
    task = progress.add_task("say it again", total=len(temperatures), told="")
    for temperature in temperatures:
        speaker = Speaker.from_git(temperature=temperature)
        said = [[speaker.frames(text, seed) for seed in range(SEEDS)] for text in TEXTS]
        figures[f"voice_duration_spread_{temperature:g}"] = fmean(map(duration_spread, said))
        figures[f"voice_f0_spread_{temperature:g}"] = fmean(
            f0_spread(each, speaker) for each in said
        )
        progress.advance(task)
    for voice in VOICES:
        speaker = Speaker.from_git(voice=voice)
        pitches = [np.median(f0_of(speaker.frames(text, 0), speaker)) for text in TEXTS]
        figures[f"voice_f0_hz_{voice}"] = float(np.mean(pitches))
    figures["voice_f0_ratio"] = (
        figures[f"voice_f0_hz_{VOICES[1]}"] / figures[f"voice_f0_hz_{VOICES[0]}"]
    )
    return figures


def duration_spread(said: Sequence[NDArray[np.float32]]) -> float:
    """Of one sentence, said several times in frames [T, CHANNELS]."""
    frames = np.array([len(one) for one in said], np.float64)
    return float(frames.std() / frames.mean())


def f0_spread(said: Sequence[NDArray[np.float32]], speaker: Speaker) -> float:
    """Of one sentence, in semitones."""
    contours = [_resampled(_SEMITONES * np.log(f0_of(one, speaker))) for one in said]
    return float(np.std(contours, axis=0).mean())


def f0_of(frames: NDArray[np.float32], speaker: Speaker) -> NDArray[np.float32]:
    """Hz, of the voiced frames."""
    return np.asarray(speaker.voice.f0_hz(frames)[voiced(frames) > 0])


def _resampled(contour: NDArray[np.float64]) -> NDArray[np.float64]:
    places = np.linspace(0, len(contour) - 1, POINTS)
    return np.interp(places, np.arange(len(contour)), contour)
