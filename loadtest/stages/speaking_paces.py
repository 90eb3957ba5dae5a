"""How soon and how fast the voice speaks: a lone caller at each number of flow steps, and crowds.

Times are the caller's. A crowd's callers ask for a sentence as soon as they have the one before to
its end, so that they are always as many until the first of them has had all of its own.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from client.turns import TurnChunk, TurnClient, TurnOptions
from loadtest.engine.figures import ratio, rotated
from loadtest.load.punctuality import percentile
from loadtest.stages.flow_pieces import shipped
from loadtest.stages.reheard import sentences

STEPS = (2, 4, 8, 16)
SHIPPED = int(shipped("steps"))
CROWDS = (4, 8)
TIMED = sentences()[::5]
"""What is spoken against the clock: of both kinds."""

EACH = 4
"""Sentences that a caller of a crowd speaks."""

_SHARES = {"p50": 0.5, "p95": 0.95}


@dataclass(frozen=True)
class Pass:
    """A batch of the flow decoder, as one of its pieces tells of it."""

    start_ns: int
    end_ns: int
    members: int


@dataclass(frozen=True, eq=False)
class Spoken:
    """One sentence as its caller got it."""

    first_audio_s: float
    """From sending the request to the first chunk with sound."""

    seconds: float
    """From sending the request to the last chunk."""

    speech: NDArray[np.float32]
    rate_hz: int
    passes: Sequence[Pass]
    """One of each of its pieces."""

    @property
    def sound_s(self) -> float:
        """How long it takes to listen to."""
        return len(self.speech) / self.rate_hz


@dataclass(frozen=True)
class Pace:
    """How some callers fared in one round."""

    first_audio_ms: Sequence[float]
    sound_s: float
    seconds: float
    """From the first request to the last chunk; of a lone caller, of its requests alone."""

    @property
    def rtf(self) -> float:
        """Real-time factor: seconds that a second of sound took."""
        return self.seconds / self.sound_s

    @property
    def throughput(self) -> float:
        """Seconds of sound in a second."""
        return self.sound_s / self.seconds


Lone = Mapping[int, Sequence[Pace]]
"""Flow steps -> a lone caller's pace, one a round."""

Crowds = Mapping[int, Sequence[Pace]]
"""Callers -> their pace at the shipped steps, one a round."""


def speak(client: TurnClient, text: str, *, steps: int, seed: int) -> Spoken:
    """Have one sentence spoken, by the solver that the stage chooses for so many steps; raises the
    StageError that it ended with."""
    options = TurnOptions(speech_temperature=0.0, seed=seed, steps=steps)
    stream = client.speak(text, options=options)
    chunks = list(stream)
    first = next(chunk for chunk in chunks if chunk.speech.size)
    return Spoken(
        first_audio_s=(first.received_ns - stream.sent_ns) / 1e9,
        seconds=(chunks[-1].received_ns - stream.sent_ns) / 1e9,
        speech=np.concatenate([chunk.speech for chunk in chunks]),
        rate_hz=first.sample_rate_hz,
        passes=list({chunk.piece: _pass(chunk) for chunk in chunks}.values()),
    )


def _pass(chunk: TurnChunk) -> Pass:
    """The batch that the chunk's piece was in."""
    span = next(one for one in chunk.events if (one.stage, one.what) == ("acoustic", "compute"))
    return Pass(span.start_ns, span.end_ns, int(span.more["members"]))


def paces(client: TurnClient, rounds: int, progress: Progress) -> tuple[Lone, Crowds]:
    """Every number of steps and callers, in turns; a round before the first warms up."""
    lone: dict[int, list[Pace]] = defaultdict(list)
    crowds: dict[int, list[Pace]] = defaultdict(list)
    task = progress.add_task("speaking", total=rounds + 1, told="")
    for number in range(-1, rounds):
        progress.update(task, told=f"round {number + 1}" if number >= 0 else "warming up")
        for steps in rotated(STEPS, number + 1):
            pace = _alone(client, steps)
            if number >= 0:
                lone[steps].append(pace)
        for callers in rotated(CROWDS, number + 1):
            pace = _together(client, callers)
            if number >= 0:
                crowds[callers].append(pace)
        progress.advance(task)
    return lone, crowds


def _alone(client: TurnClient, steps: int) -> Pace:
    spoken = [speak(client, text, steps=steps, seed=seed) for seed, text in enumerate(TIMED)]
    return pace_of(spoken, sum(one.seconds for one in spoken))


def _together(client: TurnClient, callers: int) -> Pace:
    def call(caller: int) -> list[Spoken]:
        said = turns(caller, callers, len(TIMED))
        return [speak(client, TIMED[at], steps=SHIPPED, seed=at) for at in said]

    began = time.monotonic()
    with ThreadPoolExecutor(callers) as pool:
        spoken = [one for each in pool.map(call, range(callers)) for one in each]
    return pace_of(spoken, time.monotonic() - began)


def turns(caller: int, callers: int, count: int) -> list[int]:
    """Which of `count` sentences a caller speaks: everybody begins elsewhere, all equally often."""
    return [(caller * count // callers + number) % count for number in range(EACH)]


def pace_of(spoken: Sequence[Spoken], seconds: float) -> Pace:
    """Of sentences that took so long together."""
    first_audio_ms = [1e3 * one.first_audio_s for one in spoken]
    return Pace(first_audio_ms, sum(one.sound_s for one in spoken), seconds)


def lone_figures(lone: Lone) -> dict[str, float | None]:
    """Real-time factor and first audio at each number of steps, and by those at the shipped one."""
    found: dict[str, float | None] = {}
    for steps in STEPS:
        rtf, first = rtfs(lone[steps]), first_audios_ms(lone[steps])
        found[f"speaking_rtf_{steps}_steps"] = median(rtf)
        found[f"speaking_first_audio_ms_{steps}_steps"] = median(first)
        if steps != SHIPPED:
            by = f"{steps}_by_{SHIPPED}_steps"
            found[f"speaking_rtf_{by}"] = ratio(rtf, rtfs(lone[SHIPPED]))
            found[f"speaking_first_audio_{by}"] = ratio(first, first_audios_ms(lone[SHIPPED]))
    return found


def rtfs(rounds: Sequence[Pace]) -> list[float]:
    return [one.rtf for one in rounds]


def first_audios_ms(rounds: Sequence[Pace], share: float = 0.5) -> list[float]:
    """A percentile of each round."""
    return [percentile(one.first_audio_ms, share) for one in rounds]


def crowd_figures(crowds: Crowds, lone: Lone) -> dict[str, float | None]:
    """Seconds of sound per second, also by a lone caller's, and first audio p50 and p95."""
    found: dict[str, float | None] = {}
    alone = [one.throughput for one in lone[SHIPPED]]
    for callers in CROWDS:
        throughput = [one.throughput for one in crowds[callers]]
        first = {name: first_audios_ms(crowds[callers], share) for name, share in _SHARES.items()}
        found[f"speaking_sound_s_per_s_n{callers}"] = median(throughput)
        found[f"speaking_n{callers}_by_n1_throughput"] = ratio(throughput, alone)
        for name, values in first.items():
            found[f"speaking_first_audio_{name}_ms_n{callers}"] = median(values)
    return found
