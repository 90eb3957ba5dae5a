"""Crowds who speak, hear the whole answer, and speak again: on the emulated device, and on real
weights.

`paced`: 1, 16 and 64 callers. `real`: 1 and 4.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any, Final

from rich.progress import Progress

from loadtest.engine.figures import Found
from loadtest.live.parts import (
    SUM,
    chunk_figures,
    chunk_percentiles,
    figures,
    means,
    parts_of,
    percentiles,
)
from loadtest.live.people import CHUNK_S, Script
from loadtest.live.record import Record
from loadtest.live.server_side import Chunks
from loadtest.live.sounds import Floats, samples
from loadtest.live.stand import Stand, emulated, real
from loadtest.load.punctuality import LATE_MS
from loadtest.seed.figures import Target, at_most

CROWDS: Final = (1, 16, 64)
REAL_CROWDS: Final = (1, 4)
ROUNDS: Final = 3
"""Of a full bench at most: an answer takes as long as it is, and callers pause for nothing else."""

TURNS: Final = 3
"""Of each caller in a round; one where there is only one round."""

SPREAD_S: Final = 9.0
"""Callers begin at random within a turn's length, so that they are not in step."""

BUSIEST: Final = CROWDS[-1]
TARGETS: Final[dict[str, Target]] = {
    f"paced_{BUSIEST}_chunk_ms_p95": at_most(10),
    f"paced_{BUSIEST}_sent_late_ms_p95": at_most(LATE_MS),
    **{f"paced_{people}_failed_turns": at_most(0) for people in CROWDS},
    **{f"real_{people}_failed_turns": at_most(0) for people in REAL_CROWDS},
}


def paced(folder: Path, rounds: int, progress: Progress) -> Found:
    """Emulated."""
    with emulated(progress) as stand:
        return _crowds("paced", stand, CROWDS, rounds, progress)


def on_real_weights(folder: Path, rounds: int, progress: Progress) -> Found:
    """Real weights."""
    with real(progress) as stand:
        return _crowds("real", stand, REAL_CROWDS, rounds, progress)


def scripts(people: int, turns: int, sounds: Sequence[Floats], rng: Random) -> list[Script]:
    """Of a crowd: everybody has the orders in an order of their own, chunks out of step."""
    spread_s = SPREAD_S if people > 1 and turns > 1 else SPREAD_S / 3 * (people > 1)
    return [
        Script(
            sounds=rng.sample(list(sounds), turns),
            dial_s=rng.uniform(0, CHUNK_S),
            listen_s=rng.uniform(0, spread_s),
        )
        for _ in range(people)
    ]


def _crowds(
    name: str, stand: Stand, crowds: Sequence[int], rounds: int, progress: Progress
) -> Found:
    """Every crowd once a round."""
    turns, sounds = (TURNS if rounds > 1 else 1), samples()
    by_round: dict[int, list[list[Record]]] = defaultdict(list)
    heard: dict[int, Chunks] = defaultdict(Chunks)
    for number in range(min(rounds, ROUNDS)):
        for people in crowds:
            asked = scripts(people, turns, sounds, Random(f"{number} {people}"))
            told = f"{people} callers, round {number + 1}"
            before = stand.chunks()
            by_round[people].append(stand.talk(told, asked, progress))
            heard[people] += stand.chunks() - before
    records = {people: list(chain.from_iterable(each)) for people, each in by_round.items()}
    found: dict[str, float | None] = {}
    for people, each in records.items():
        found |= figures(f"{name}_{people}", each)
        found |= chunk_figures(f"{name}_{people}", by_round[people])
        found[f"{name}_{people}_server_chunk_within_10_ms_share"] = heard[people].share
    details = {
        str(people): detail(each) | {"by_round": list(map(chunk_percentiles, by_round[people]))}
        for people, each in records.items()
    }
    return Found(found, details)


def detail(records: Sequence[Record]) -> dict[str, Any]:
    """Of one crowd, for plots and readers."""
    found = parts_of(records)
    outcomes = Counter(
        turn.outcome or "open" for record in records for turn in record.turns.values()
    )
    calls = Counter(record.error for record in records if record.error)
    return {
        "answers": len(found),
        "mean_parts_ms": means(found),
        **percentiles({f"{SUM}_ms": [one.first_sound for one in found]}),
        "outcomes": dict(outcomes),
        "calls_failed": dict(calls),
        "slowest": [
            asdict(one) for one in islice(sorted(found, key=lambda one: -one.first_sound), 3)
        ],
    }
