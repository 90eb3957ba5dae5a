"""How differently a sentence is said twice: durations and F0 over seeds, by temperature."""

from collections.abc import Sequence
from statistics import fmean
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from build.voice.speaker import Models, Said, Speaker
from build.voice.unseen import SENTENCES
from python_backends.diffusion_lock.source import Voice, voiced
from python_backends.speech import VOICES

TEXTS: Final = SENTENCES[::17]
SEEDS: Final = 6

_SEMITONES: Final = 12 / np.log(2)


def spreads(temperatures: Sequence[float], progress: Progress) -> dict[str, float]:
    """Standard deviations over seeds, means of both voices.

    `voice_duration_spread_<temperature>`: of a sentence's duration, as a share of it.
    `voice_f0_spread_<temperature>`: of the mean F0 of a phoneme, in semitones.
    """
    figures = {}
    models = Models.from_git()
    task = progress.add_task("say it again", total=len(temperatures) * len(VOICES), told="")
    for temperature in temperatures:
        durations, pitches = [], []
        for voice in VOICES:
            speaker = Speaker(models, voice=voice, temperature=temperature)
            said = [[speaker.said(text, seed) for seed in range(SEEDS)] for text in TEXTS]
            durations.append(fmean(map(duration_spread, said)))
            each = np.concatenate([f0_spreads(readings, speaker.voice) for readings in said])
            pitches.append(float(each.mean()))
            progress.advance(task)
        figures[f"voice_duration_spread_{temperature:g}"] = fmean(durations)
        figures[f"voice_f0_spread_{temperature:g}"] = fmean(pitches)
    return figures


def duration_spread(readings: Sequence[Said]) -> float:
    """Of one sentence, said several times."""
    frames = np.array([len(one.frames) for one in readings], np.float64)
    return float(frames.std() / frames.mean())


def f0_spreads(readings: Sequence[Said], voice: Voice) -> NDArray[np.float64]:
    """Of one sentence's phonemes, semitones: of each that is voiced in two readings at least.

    A phoneme has one pitch, the mean of its voiced frames: how long it is makes no difference.
    """
    pitches = np.array([_pitches(one, voice) for one in readings])
    compared = (~np.isnan(pitches)).sum(0) >= 2
    return np.asarray(np.nanstd(pitches[:, compared], axis=0))


def _pitches(said: Said, voice: Voice) -> NDArray[np.float64]:
    """Mean log F0 of each phoneme [P] in semitones; NaN where nothing is voiced."""
    phoneme = np.repeat(np.arange(len(said.durations)), said.durations)
    sung = voiced(said.frames) > 0
    tones = _SEMITONES * np.log(voice.f0_hz(said.frames))
    counts, sums = (
        np.bincount(phoneme[sung], weights, len(said.durations)) for weights in (None, tones[sung])
    )
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
