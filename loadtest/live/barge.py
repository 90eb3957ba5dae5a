"""Answers that are broken off: how soon it is silent, and how soon the stages are free again.

`stop_answer` at random moments, by one caller alone and by several; and by speech.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Final

from rich.progress import Progress

from loadtest.device import DevicePass, Emulation, read_passes
from loadtest.engine.figures import Found
from loadtest.live.parts import percentiles
from loadtest.live.people import CHUNK_S, Script, Stop
from loadtest.live.record import NS_PER_MS, Record, Turn
from loadtest.live.sounds import samples
from loadtest.live.stand import device_of, emulated
from loadtest.seed.figures import Target, at_least, at_most

CALLERS: Final = 8
ROUNDS: Final = 2
STOPS, SPOKEN = 6, 5
"""Answers of each caller in a round: those that are stopped, twice as many of the caller who is
alone; and those that the next recording interrupts, but for the last."""

WITHIN_S: Final = 0.35
"""A stop comes so long after the words, or after the first sound, at most: a lone caller's answer
is thought, and its sound is computed, about as long on the emulated device."""

SPOKEN_WITHIN_S: Final = (0.2, 2.0)
SETTLE_S: Final = 0.5
"""After the last stop, for passes that should not have been asked for."""

STAGES: Final = ("think", "speak")

TARGETS: Final[dict[str, Target]] = {
    "barge_in_silence_ms_p95": at_most(150),
    "barge_in_sounds_behind": at_most(0),
    "barge_in_stops_ignored": at_most(0),
    "barge_in_stages_hit": at_least(1),
    "barge_in_passes_beyond_a_step": at_most(0),
    "barge_in_speech_ignored": at_most(0),
}


@dataclass(frozen=True)
class Freed:
    """A stop of a lone caller, of whose answer a stage was computing a step."""

    stage: str
    after_ms: float
    """From the client's being told to the beginning of the last step; 0 where none began after."""

    beyond: int
    """Passes that began more than a step later."""


def barge_in(folder: Path, rounds: int, progress: Progress) -> Found:
    """Emulated."""
    alone: list[Record] = []
    several: list[Record] = []
    spoken: list[Record] = []
    found: list[Freed] = []
    with emulated(progress) as stand:
        assert stand.emulation is not None
        stops, spoken_turns = (STOPS, SPOKEN) if rounds > 1 else (2, 2)
        for number in range(min(rounds, ROUNDS)):
            rng = Random(number)
            lone = stopping(2 * stops, rng, first=number)
            records = stand.talk("stopped, alone", [lone], progress)
            time.sleep(SETTLE_S)
            found += freed(records, read_passes(device_of(stand)), step_ms(stand.emulation))
            alone += records
            crowd = [stopping(stops, rng, first=one) for one in range(CALLERS)]
            several += stand.talk(f"stopped, {CALLERS} callers", crowd, progress)
            talkers = [interrupting(spoken_turns, rng) for _ in range(CALLERS)]
            spoken += stand.talk(f"interrupted, {CALLERS} callers", talkers, progress)
    figures = stop_figures([*alone, *several]) | freed_figures(found) | speech_figures(spoken)
    detail = {
        "silence_ms": {"alone": silences_ms(alone), "several": silences_ms(several)},
        "speech_to_pause_ms": [ms for record in spoken for ms in record.pauses_ms()],
        "freed": [asdict(one) for one in found],
    }
    return Found(figures, detail)


def stopping(stops: int, rng: Random, first: int) -> Script:
    """The shortest order again and again, its answer stopped while it is thought and while it is
    spoken, in turns."""
    order = min(samples(), key=len)
    moments = [
        Stop("audio" if (first + number) % 2 else "transcript", rng.uniform(0, WITHIN_S))
        for number in range(stops)
    ]
    return Script([order] * stops, dial_s=rng.uniform(0, CHUNK_S), stops=moments)


def interrupting(turns: int, rng: Random) -> Script:
    """Orders, each begun during the answer to the one before; the last answer is stopped."""
    return Script(
        sounds=rng.sample(samples(), turns),
        dial_s=rng.uniform(0, CHUNK_S),
        listen_s=rng.uniform(0, 2.0),
        barge_in_s=rng.uniform(*SPOKEN_WITHIN_S),
        stops=[*[None] * (turns - 1), Stop("audio", 0.5)],
    )


def step_ms(emulation: Emulation) -> dict[str, float]:
    """Of each stage with one member: its pass, or the host's work beside it if that is longer."""
    return {
        stage: max(emulation.profile.stages[stage].cost_ms.ms(1), emulation.gap_ms(1))
        for stage in STAGES
    }


def stopped(record: Record) -> list[tuple[int, Turn]]:
    """Turns that their caller had stopped, and when that was sent."""
    return [(at_ns, record.turns[name]) for name, at_ns in record.stops_ns.items()]


def silences_ms(records: Sequence[Record]) -> list[float]:
    """From the sending of a stop to the end of the last sound at the loudspeaker, of answers that
    were being heard."""
    return [
        (record.last_sounds_ns[turn.name] - at_ns) / NS_PER_MS
        for record in records
        for at_ns, turn in stopped(record)
        if turn.first_sound_ns and record.last_sounds_ns.get(turn.name, 0) > at_ns
    ]


def stop_figures(records: Sequence[Record]) -> dict[str, float | None]:
    """Of stops, and that nothing is heard behind them."""
    turns = [turn for record in records for _, turn in stopped(record)]
    silences = silences_ms(records)
    return {
        "barge_in_stops": len(turns),
        "barge_in_stops_while_heard": len(silences),
        **_named(percentiles({"silence_ms": silences})),
        "barge_in_sounds_behind": sum(turn.sounds_behind for turn in turns),
        "barge_in_stops_ignored": sum(turn.outcome != "interrupted" for turn in turns)
        + sum(record.planned - len(record.stops_ns) for record in records),
    }


def freed(
    records: Sequence[Record], passes: Sequence[DevicePass], steps_ms: Mapping[str, float]
) -> list[Freed]:
    """Of stops that came while a stage was computing: what it went on with.

    `records` are of callers who were alone with the device, and `passes` end when they do: all
    passes of think and speak from the end of one turn of speech to that of the next one are of one
    answer.
    """
    found = []
    own = [one for one in passes if one.stage in STAGES]
    for record in records:
        turns = [turn for _, turn in stopped(record) if turn.interrupted_ns]
        ends = [*(turn.spoken_ns for turn in turns[1:]), 2**63]
        for turn, until_ns in zip(turns, ends, strict=True):
            answer = [one for one in own if turn.spoken_ns <= one.start_ns < until_ns]
            if (one := _freed(turn.interrupted_ns, answer, steps_ms)) is not None:
                found.append(one)
    return found


def _freed(
    told_ns: int, answer: Sequence[DevicePass], steps_ms: Mapping[str, float]
) -> Freed | None:
    """None where no stage was at work."""
    before = [one for one in answer if one.start_ns <= told_ns]
    if not before:
        return None
    last = before[-1]
    step_ns = steps_ms[last.stage] * NS_PER_MS
    after = [one for one in answer if one.start_ns > told_ns]
    if not after and told_ns > last.start_ns + step_ns:
        return None  # it had finished
    latest_ns = max((one.start_ns for one in after), default=told_ns)
    beyond = sum(one.start_ns > told_ns + step_ns for one in after)
    return Freed(last.stage, (latest_ns - told_ns) / NS_PER_MS, beyond)


def freed_figures(found: Sequence[Freed]) -> dict[str, float | None]:
    """How soon slots are back."""
    return {
        "barge_in_stages_hit": len(found),
        **_named(percentiles({"slots_back_ms": [one.after_ms for one in found]})),
        "barge_in_passes_beyond_a_step": sum(one.beyond for one in found),
    }


def speech_figures(records: Sequence[Record]) -> dict[str, float | None]:
    """Of answers that the next recording interrupts: all but each caller's last."""
    pauses_ms = [ms for record in records for ms in record.pauses_ms()]
    due = sum(record.planned - 1 for record in records)
    return {
        "barge_in_by_speech": due,
        "barge_in_speech_ignored": due - len(pauses_ms),
        **_named(percentiles({"speech_to_pause_ms": pauses_ms})),
    }


def _named(found: Mapping[str, float | None]) -> dict[str, float | None]:
    return {f"barge_in_{name}": value for name, value in found.items()}
