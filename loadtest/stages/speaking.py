"""The voice through a real server: how soon and how fast it speaks, and how well it is understood.

The ensemble `speak` on the real weights, greedy prosody, one fixed seed a sentence, so that a
sentence is the same at every number of flow steps but for what the steps make of it. A lone caller
speaks the same few sentences at each number of steps, in turns; then several callers speak at once
at the shipped number.

What is understood is heard of forty unseen sentences, once: the sound is the same in every round.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from client import audio
from client.turns import TurnClient
from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.engine.figures import Found
from loadtest.seed.figures import Target, at_least, at_most
from loadtest.stages.listener import Listener
from loadtest.stages.reheard import Heard, distance_db, misheard, sentences, word_error_rate
from loadtest.stages.speaking_paces import (
    CROWDS,
    SHIPPED,
    STEPS,
    Crowds,
    Lone,
    Pace,
    crowd_figures,
    lone_figures,
    paces,
    rtfs,
    speak,
)

FINEST = STEPS[-1]
OTHER_SEED = 1000
"""Added to a seed, for another reading that is as good."""

Hear = Callable[[NDArray[np.float32], int], str]
"""(sound, Hz) -> its words."""

TARGETS: dict[str, Target] = {
    f"speaking_rtf_{SHIPPED}_steps": at_most(0.2),
    f"speaking_wer_{SHIPPED}_steps": at_most(0.05),
    f"speaking_n{CROWDS[-1]}_by_n1_throughput": at_least(1.0),
}


@dataclass
class Readings:
    """What the unseen sentences sounded like."""

    heard: dict[int, list[Heard]] = field(default_factory=lambda: defaultdict(list))
    """By flow steps."""

    distances_db: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By flow steps, of each sentence from itself in the finest steps."""

    other_seed_db: list[float] = field(default_factory=list)
    """Of each sentence in the finest steps from itself with another seed."""


def speaking(folder: Path, rounds: int, progress: Progress) -> Found:
    """A lone caller, crowds, and what is understood; one sentence is kept as WAV files."""
    with Server(Settings(models=["speak"])) as server, TurnClient(server.grpc_address) as client:
        lone, crowds = paces(client, rounds, progress)
        with closing(Listener()) as listener:
            readings = read(client, listener.hear, folder / "speaking", progress)
    return Found(
        figures=lone_figures(lone) | crowd_figures(crowds, lone) | reading_figures(readings),
        detail=told(lone, crowds, readings),
    )


def read(client: TurnClient, hear: Hear, folder: Path, progress: Progress) -> Readings:
    """The unseen sentences at each number of steps, alone; the first one's sound is written."""
    readings = Readings()
    folder.mkdir(parents=True, exist_ok=True)
    unseen = sentences()
    task = progress.add_task("listening", total=len(unseen), told="")
    for seed, text in enumerate(unseen):
        by_steps = {steps: speak(client, text, steps=steps, seed=seed) for steps in STEPS}
        finest = by_steps[FINEST]
        other = speak(client, text, steps=FINEST, seed=seed + OTHER_SEED)
        readings.other_seed_db.append(distance_db(other.speech, finest.speech, finest.rate_hz))
        for steps, one in by_steps.items():
            distance = distance_db(one.speech, finest.speech, one.rate_hz)
            readings.distances_db[steps].append(distance)
            readings.heard[steps].append(Heard(text, hear(one.speech, one.rate_hz)))
            if seed == 0:
                audio.write(folder / f"{steps}-steps.wav", one.speech, one.rate_hz)
        progress.advance(task)
    return readings


def reading_figures(readings: Readings) -> dict[str, float | None]:
    """Word error rate and distance from the finest steps, at each number of steps."""
    found: dict[str, float | None] = {}
    for steps in STEPS:
        found[f"speaking_wer_{steps}_steps"] = word_error_rate(readings.heard[steps])
        if steps != FINEST:
            found[f"speaking_distance_db_{steps}_steps"] = fmean(readings.distances_db[steps])
    found["speaking_distance_db_other_seed"] = fmean(readings.other_seed_db)
    return found


def told(lone: Lone, crowds: Crowds, readings: Readings) -> dict[str, Any]:
    """For plots and readers: every round, and what was misheard."""
    return {
        "steps": list(STEPS),
        "shipped": SHIPPED,
        "rtf": {str(steps): rtfs(lone[steps]) for steps in STEPS},
        "first_audio_ms": {str(steps): _first_audio_ms(lone[steps]) for steps in STEPS},
        "crowds_first_audio_ms": {
            str(callers): _first_audio_ms(crowds[callers]) for callers in CROWDS
        },
        "wer": {str(steps): word_error_rate(heard) for steps, heard in readings.heard.items()},
        "misheard": {str(steps): misheard(heard) for steps, heard in readings.heard.items()},
        "distance_db": {str(steps): each for steps, each in readings.distances_db.items()},
        "other_seed_db": readings.other_seed_db,
    }


def _first_audio_ms(rounds: Sequence[Pace]) -> list[float]:
    """Of every sentence."""
    return [value for one in rounds for value in one.first_audio_ms]
