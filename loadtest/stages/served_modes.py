"""Locked batches, interleaved steps and one piece at a time through the real server.

Three servers of `speak` that differ in `acoustic` alone; one that is not asked computes nothing.
Everybody asks at once: equal sentences of one key, or several of other lengths and steps.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import monotonic

from rich.progress import Progress

from client.turns import TurnClient
from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.engine.figures import Found, rotated
from loadtest.load.punctuality import percentile
from loadtest.seed.figures import Target, at_most
from loadtest.stages.flow_pieces import ALONE, EQUAL, INTERLEAVE, KEYS, LOCK, MODES, mode_figures
from loadtest.stages.speaking_paces import SHIPPED, TIMED, Pass, speak

ACOUSTIC: dict[str, dict[str, str]] = {
    LOCK: {},
    INTERLEAVE: {"mode": "interleave"},
    ALONE: {"max_batch": "1"},
}
REQUESTS = (1, 4, 16)
MIXED_STEPS = (2, SHIPPED, 8)

TARGETS: dict[str, Target] = {"served_lock_violations": at_most(0)}

Where = tuple[str, str, int]
"""(mode, keys, requests)."""


@dataclass(frozen=True)
class Burst:
    """How some sentences asked for at once fared."""

    first_ms: Sequence[float]
    sentences_per_s: float

    def figure(self, name: str) -> float:
        """p50_ms and p95_ms of the first audio, or sentences_per_s."""
        if name == "sentences_per_s":
            return self.sentences_per_s
        return percentile(self.first_ms, {"p50_ms": 0.5, "p95_ms": 0.95}[name])


def served_modes(folder: Path, rounds: int, progress: Progress) -> Found:
    """Every scheduler and crowd in turns; a round before the first warms up."""
    bursts: dict[Where, list[Burst]] = defaultdict(list)
    violations = 0
    task = progress.add_task("served modes", total=rounds + 1, told="")
    with ExitStack() as stack:
        clients = {mode: _client(stack, acoustic) for mode, acoustic in ACOUSTIC.items()}
        for number in range(-1, rounds):
            progress.update(task, told=f"round {number + 1}" if number >= 0 else "warming up")
            for keys in KEYS:
                for requests in REQUESTS:
                    for mode in rotated(MODES, number + 1):
                        burst, passes = _burst(clients[mode], keys, requests)
                        if mode == LOCK:
                            violations += lock_violations(passes)
                        if number >= 0:
                            bursts[mode, keys, requests].append(burst)
            progress.advance(task)
    detail = {
        f"{mode}_{keys}_n{requests}": {
            name: median(one.figure(name) for one in each)
            for name in ("p50_ms", "p95_ms", "sentences_per_s")
        }
        for (mode, keys, requests), each in bursts.items()
    }
    figures: dict[str, float | None] = {"served_lock_violations": violations}
    return Found(figures | burst_figures(bursts), {"cells": detail})


def _client(stack: ExitStack, acoustic: Mapping[str, str]) -> TurnClient:
    settings = Settings(models=["speak"], overrides={"acoustic": acoustic})
    server = stack.enter_context(Server(settings))
    return stack.enter_context(TurnClient(server.grpc_address))


def _burst(client: TurnClient, keys: str, requests: int) -> tuple[Burst, list[Pass]]:
    def call(number: int) -> tuple[float, Sequence[Pass]]:
        at = 0 if keys == EQUAL else number
        steps = SHIPPED if keys == EQUAL else MIXED_STEPS[number % len(MIXED_STEPS)]
        one = speak(client, TIMED[at % len(TIMED)], steps=steps, seed=number)
        return 1e3 * one.first_audio_s, one.passes

    began = monotonic()
    with ThreadPoolExecutor(requests) as callers:
        told = list(callers.map(call, range(requests)))
    seconds = monotonic() - began
    passes = [one for _, each in told for one in each]
    return Burst([first for first, _ in told], requests / seconds), passes


def lock_violations(passes: Iterable[Pass]) -> int:
    """Of the pieces' own events: batches whose members did not begin and end together, and those
    that began before the one before had ended."""
    batches = Counter(passes)
    apart = sum(found != batch.members for batch, found in batches.items())
    spans = sorted((batch.start_ns, batch.end_ns) for batch in batches)
    return apart + sum(later[0] < earlier[1] for earlier, later in pairwise(spans))


def burst_figures(bursts: Mapping[Where, Sequence[Burst]]) -> dict[str, float | None]:
    """Of the largest crowd: first audio and throughput, and ratios between schedulers."""
    found: dict[str, float | None] = {}
    most = REQUESTS[-1]
    for keys in KEYS:
        for name in ("p50_ms", "p95_ms", "sentences_per_s"):
            values = {
                mode: [one.figure(name) for one in bursts[mode, keys, most]] for mode in MODES
            }
            found |= mode_figures("served", f"{keys}_n{most}", name, values)
    return found
