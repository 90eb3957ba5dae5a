"""When is a turn over? Orders with pauses inside, by several callers in real time, to `listen`."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress

from client.live import LiveClient, LiveEvent, Playback, converse
from client.live.speaker import Pcm, to_pcm
from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.engine.figures import Found
from loadtest.live.endpoint_orders import ORDERS, Spoken, Teacher, calls, length_s
from loadtest.live.endpoint_score import End, Score, fixed, score, voice_activity
from loadtest.live.parts import percentiles
from loadtest.live.people import CHUNK, CHUNK_S
from loadtest.seed.figures import Target, at_least, at_most

CALLERS: Final = 4
FEW: Final = 8
"""Orders where there is only one round."""

TIMEOUTS_S: Final = tuple(round(0.3 + 0.05 * step, 2) for step in range(25))
NAMED_S: Final = (0.4, 0.6, 0.8, 1.5)
"""The product's own; the first one it waits for behind what asks for an answer."""

TELLING_S: Final = 0.002
"""Positions are told in whole ms."""

TARGETS: Final[dict[str, Target]] = {
    "endpoints_orders_lost": at_most(0),
    "endpoints_phantom_turns": at_most(0),
    "endpoints_delay_by_as_safe_fixed": at_most(1),
    "endpoints_ends_as_computed_share": at_least(0.95),
}


@dataclass(frozen=True)
class Heard:
    """What one caller was told."""

    ends: Sequence[End]
    texts: Sequence[str]


def endpoints(folder: Path, rounds: int, progress: Progress) -> Found:
    """Once: neither voice activity nor words differ from round to round."""
    task = progress.add_task("endpoints", total=2, told="recording")
    spoken = calls(CALLERS, len(ORDERS) if rounds > 1 else FEW, Teacher(folder / "clauses"))
    progress.update(task, advance=1, told=f"{length_s(spoken):.0f} s, {CALLERS} callers at once")
    with Server(Settings(models=["listen"], exit_timeout_s=2)) as server:
        heard = asyncio.run(_listen(server.grpc_address, spoken))
    progress.update(task, advance=1, told="fixed time-outs")
    activity = voice_activity([one.sound for one in spoken])
    by_timeout = {
        timeout_s: _score(spoken, [fixed(timeout_s, each) for each in activity])
        for timeout_s in TIMEOUTS_S
    }
    progress.remove_task(task)
    told = [each.ends for each in heard]
    adaptive = _score(spoken, told)
    computed = [fixed(NAMED_S[0], each) for each in activity]
    checks = {"endpoints_ends_as_computed_share": as_computed(told, computed)}
    return Found(
        figures(adaptive, by_timeout) | checks,
        {
            "pauses": sum(len(order.pauses_s) for one in spoken for order in one.orders),
            "adaptive": _point(adaptive),
            "fixed": {str(timeout_s): _point(one) for timeout_s, one in by_timeout.items()},
            "heard": [
                {"said": [order.text for order in one.orders], "heard": list(each.texts)}
                for one, each in zip(spoken, heard, strict=True)
            ],
        },
    )


def figures(adaptive: Score, by_timeout: Mapping[float, Score]) -> dict[str, float | None]:
    """Of the product and of fixed time-outs; the shortest of those that end no more turns too early
    is what the product's delay is held against."""
    named = {"adaptive": adaptive} | {
        f"fixed_{round(1000 * one)}": by_timeout[one] for one in NAMED_S
    }
    found: dict[str, float | None] = {
        "endpoints_orders_lost": adaptive.lost,
        "endpoints_phantom_turns": adaptive.phantoms,
    }
    for name, one in named.items():
        found[f"endpoints_{name}_false_ends"] = one.false_ends
        found[f"endpoints_{name}_delay_ms_mean"] = round(one.delay_ms, 1)
        found |= _named(percentiles({f"{name}_delay_ms": one.delays_ms}))
    found |= _named(percentiles({"told_ms": adaptive.told_ms}))
    safe = [t for t, one in by_timeout.items() if one.false_ends <= adaptive.false_ends]
    as_safe_s = min(safe, default=None)
    found["endpoints_as_safe_fixed_ms"] = None if as_safe_s is None else 1000 * as_safe_s
    found["endpoints_delay_by_as_safe_fixed"] = (
        None if as_safe_s is None else adaptive.delay_ms / by_timeout[as_safe_s].delay_ms
    )
    return found


def as_computed(told: Sequence[Sequence[End]], computed: Sequence[Sequence[End]]) -> float | None:
    """The share of the ends that callers were told of that are at a pause found in the same sound
    here, and so what the fixed time-outs rest on; None where nobody was told of one."""
    found = [
        any(abs(one.at_s - other.at_s) < TELLING_S for other in here)
        for ends, here in zip(told, computed, strict=True)
        for one in ends
    ]
    return sum(found) / len(found) if found else None


def _score(spoken: Sequence[Spoken], ends: Sequence[Sequence[End]]) -> Score:
    return score([(one.orders, each) for one, each in zip(spoken, ends, strict=True)])


def _point(one: Score) -> dict[str, Any]:
    return {
        "false_ends": one.false_ends,
        "delay_ms_mean": one.delay_ms,
        "delays_ms": [round(delay) for delay in one.delays_ms],
    }


def _named(found: Mapping[str, float | None]) -> dict[str, float | None]:
    return {f"endpoints_{name}": value for name, value in found.items()}


async def _listen(address: str, spoken: Sequence[Spoken]) -> list[Heard]:
    async with LiveClient(address, model="listen") as client:
        return await asyncio.gather(*(_call(client, one) for one in spoken))


async def _call(client: LiveClient, spoken: Spoken) -> Heard:
    """Raises what the call fails of."""
    events: list[LiveEvent] = []
    async with client.call() as call:
        began_s = time.monotonic()
        sound = _paced(to_pcm(spoken.sound), began_s)
        await converse(call, sound, Playback(), on_event=events.append)
    ended = [event for event in events if event.type == "speech_ended"]
    return Heard(
        [
            End(
                one.more["at_ms"] / 1000,
                one.more["waited_ms"] / 1000,
                one.received_ns / 1e9 - began_s,
            )
            for one in ended
        ],
        [event.text for event in events if event.type == "transcript"],
    )


async def _paced(sound: Pcm, began_s: float) -> AsyncIterator[Pcm]:
    for number, start in enumerate(range(0, len(sound), CHUNK), 1):
        await asyncio.sleep(max(0.0, began_s + number * CHUNK_S - time.monotonic()))
        yield sound[start : start + CHUNK]
