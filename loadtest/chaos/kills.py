"""Processes die or stand still under load: who was inside is told, the others are served.

Every fault has a window of its own, and between two of them there is one without. Where the
server (2.51) ended with the stage (see deploy.keeper) that is counted, everybody is told that
nobody answers, and the fault is left out of what is asked of a stage that dies alone.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from deploy.stubs import stubs
from loadtest.chaos.caller import (
    DOOR,
    UNREACHABLE,
    UNTYPED,
    Caller,
    Told,
    crowd,
    percentile,
)
from loadtest.chaos.stand import STAGES, Stand
from loadtest.engine.figures import Found

PEOPLE: Final = 32
KILLS: Final = 5
WINDOW_S: Final = 4.0
STOP_WINDOW_S: Final = 14.0
WARM_UP_S: Final = 5.0
AWAY_S: Final = 1000.0
MARGIN_NS: Final = 1_000_000_000
"""Around an absence of the server: callers learn of its end before its keeper does, and of its
return later."""

Absence = tuple[int, int]


@dataclass(frozen=True)
class Fault:
    """A process of `stage` was hit."""

    stage: str
    at_ns: int
    until_ns: int
    """End of its window."""

    def took_the_server(self, absences: Sequence[Absence]) -> bool:
        """The server ended with it."""
        return any(self.at_ns <= since <= self.until_ns for since, _ in absences)

    def was_past(self, told: Told) -> bool:
        """It had been in the stage, and was being served further on."""
        if not told.sent_ns < self.at_ns < told.end_ns:
            return False
        span = told.was_in(self.stage)
        if span is not None:
            return span[1] <= self.at_ns
        behind = self.stage in STAGES[:-1]
        return behind and bool(told.chunks_ns) and told.chunks_ns[0] < self.at_ns


def kills(stand: Stand, random: Random, advance: Callable[[int], None]) -> Found:
    """Each stage and the front door are killed `KILLS` times, in random order."""
    order = [model for model in (*STAGES, DOOR) for _ in range(KILLS)]
    random.shuffle(order)
    return _hit(stand, order, signal.SIGKILL, WINDOW_S, "killed", advance)


def stops(stand: Stand, random: Random, advance: Callable[[int], None]) -> Found:
    """Each is stopped once, so that it hangs."""
    order = [*STAGES, DOOR]
    random.shuffle(order)
    return _hit(stand, order, signal.SIGSTOP, STOP_WINDOW_S, "stopped", advance)


def _hit(
    stand: Stand,
    order: Sequence[str],
    sign: signal.Signals,
    window_s: float,
    name: str,
    advance: Callable[[int], None],
) -> Found:
    before = len(stand.absences)
    faults, quiet, told = asyncio.run(_under_load(stand, order, sign, window_s, advance))
    leaks = stand.leaks_at_rest()
    absences = stand.absences[before:]
    found = figures(name, faults, quiet, told, absences)
    outcomes = Counter(one.outcome for one in told)
    untyped = [str(one.error) for one in told if one.outcome == UNTYPED]
    detail = {
        "outcomes": dict(outcomes),
        "faults": [_described(one, told) for one in faults],
        "untyped": untyped[:5],
        "leaks": leaks,
        "server_away_s": [(until - since) / 1e9 for since, until in absences],
        "watchdog_failures": stand.failures(),
    }
    return Found(found | {f"{name}_leaks": float(sum(leaks.values()))}, detail)


async def _under_load(
    stand: Stand,
    order: Sequence[str],
    sign: signal.Signals,
    window_s: float,
    advance: Callable[[int], None],
) -> tuple[list[Fault], list[tuple[int, int]], list[Told]]:
    """The faults, the windows without one, and all turns."""
    caller, told = Caller(stand.address), list[Told]()
    until_s = time.monotonic() + WARM_UP_S + len(order) * (WINDOW_S + window_s)
    load = asyncio.create_task(crowd(caller, PEOPLE, until_s, told))
    await asyncio.sleep(WARM_UP_S)
    faults, quiet = [], []
    for model in order:
        began_ns = time.monotonic_ns()
        await stand.be_there()
        await asyncio.sleep(WINDOW_S)
        at_ns = time.monotonic_ns()
        quiet.append((began_ns, at_ns))
        for stub in stubs(stand.server.pid, [model]):
            os.kill(stub.pid, sign)
        await asyncio.sleep(window_s)
        await stand.be_there()
        faults.append(Fault(model, at_ns, time.monotonic_ns()))
        advance(1)
    await load
    await caller.close()
    return faults, quiet, told


def figures(
    name: str,
    faults: Sequence[Fault],
    quiet: Sequence[tuple[int, int]],
    told: Sequence[Told],
    absences: Sequence[Absence] = (),
) -> dict[str, float | None]:
    """What is asked of faults. Pure."""
    alone = [one for one in faults if not one.took_the_server(absences)]
    stage_faults = [one for one in alone if one.stage != DOOR]
    door_faults = [one for one in alone if one.stage == DOOR]
    away_s = [(until - since) / 1e9 for since, until in absences]
    past = [one for fault in stage_faults for one in told if fault.was_past(one)]
    calm = [one.seconds for one in told if _in_quiet(one, quiet)]
    calm_s = percentile(calm, 95)
    open_at_door = [
        one for fault in door_faults for one in told if one.sent_ns < fault.at_ns < one.end_ns
    ]
    told_s = [
        (one.end_ns - fault.at_ns) / 1e9
        for fault in door_faults
        for one in told
        if one.sent_ns < fault.at_ns < one.end_ns and one.error is not None
    ]
    refused = [one for one in told if one.outcome == "OVERLOADED"]
    return {
        f"{name}_turns": float(len(told)),
        f"{name}_not_answered_once": float(sum(not one.answered_once for one in told)),
        f"{name}_cross_talk": float(sum(not one.is_its_own for one in told)),
        f"{name}_untyped_errors": float(sum(one.outcome == UNTYPED for one in told)),
        f"{name}_lost_inside": float(sum(_is_lost(one) for one in told)),
        f"{name}_refused_without_retry": float(
            sum(one.error is not None and one.error.retry_after_ms is None for one in refused)
        ),
        f"{name}_past_turns": float(len(past)),
        f"{name}_past_answered_share": sum(one.outcome == "ok" for one in past) / max(1, len(past)),
        f"{name}_back_s_max": max((_back_s(fault, told) for fault in alone), default=0.0),
        f"{name}_past_by_quiet_p95": percentile([one.seconds for one in past], 95) / calm_s,
        f"{name}_open_at_door": float(len(open_at_door)),
        f"{name}_door_told_s_max": max(told_s, default=0.0),
        f"{name}_server_ends": float(len(absences)),
        f"{name}_server_back_s_max": max(away_s, default=None),
        f"{name}_unreachable_for_no_reason": float(
            sum(_is_unreachable(one) and not _met(one, absences) for one in told)
        ),
    }


def _is_lost(told: Told) -> bool:
    return told.error is not None and told.error.reason == "ended"


def _is_unreachable(told: Told) -> bool:
    return told.error is not None and told.error.reason == UNREACHABLE


def _met(told: Told, absences: Sequence[Absence]) -> bool:
    """It was open when there was no server."""
    return any(
        told.sent_ns <= until + MARGIN_NS and told.end_ns >= since - MARGIN_NS
        for since, until in absences
    )


def _in_quiet(told: Told, quiet: Sequence[tuple[int, int]]) -> bool:
    return told.outcome == "ok" and any(a <= told.end_ns <= b for a, b in quiet)


def _back_s(fault: Fault, told: Sequence[Told]) -> float:
    """Until it was at work again: the first turn that arrived there after it was hit, and was
    answered. For the front door, the first that was sent."""
    if fault.stage == DOOR:
        again = [one.chunks_ns[0] for one in told if one.sent_ns > fault.at_ns and one.chunks_ns]
    else:
        spans = [span for one in told if (span := one.was_in(fault.stage)) is not None]
        again = [end for start, end in spans if start > fault.at_ns]
    return (min(again) - fault.at_ns) / 1e9 if again else AWAY_S


def _described(fault: Fault, told: Sequence[Told]) -> dict[str, object]:
    hit = [one for one in told if one.sent_ns < fault.at_ns < one.end_ns]
    return {
        "stage": fault.stage,
        "back_s": round(_back_s(fault, told), 2),
        "open": len(hit),
        "outcomes": dict(Counter(one.outcome for one in hit)),
        "past": sum(fault.was_past(one) for one in hit),
        "told_s": round(
            max(((one.end_ns - fault.at_ns) / 1e9 for one in hit if one.error), default=0.0), 2
        ),
    }
