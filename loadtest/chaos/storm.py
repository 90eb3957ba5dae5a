"""Two thousand turns, many of which nobody waits for: each is answered once, and nothing stays."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from loadtest.chaos.caller import Caller, Told
from loadtest.chaos.stand import Stand
from loadtest.engine.figures import Found

TURNS = 2000
PEOPLE = 32
CANCELS, DISCONNECTS, DEADLINES = 0.12, 0.08, 0.15
"""Shares of the turns."""

LONGEST_S = 3.0
"""A turn takes some 2 s among 32."""

WARM_UP_TURNS = 64


@dataclass(frozen=True)
class Plan:
    """What a caller is going to do."""

    leave_after_s: float | None = None
    disconnect: bool = False
    deadline_ms: int = 0


def drawn(random: Random) -> Plan:
    """One caller's plan."""
    draw = random.random()
    if draw < CANCELS:
        return Plan(leave_after_s=random.uniform(0, LONGEST_S))
    if draw < CANCELS + DISCONNECTS:
        return Plan(leave_after_s=random.uniform(0, LONGEST_S), disconnect=True)
    if draw < CANCELS + DISCONNECTS + DEADLINES:
        return Plan(deadline_ms=random.randint(100, 2500))
    return Plan()


def storm(stand: Stand, random: Random, advance: Callable[[int], None]) -> Found:
    """See the module."""
    caller = asyncio.run(_spoken(stand.address, [Plan()] * WARM_UP_TURNS, lambda n: None))
    assert caller
    stand.leaks_at_rest()
    shm_before = stand.shm_bytes()
    plans = [drawn(random) for _ in range(TURNS)]
    told = asyncio.run(_spoken(stand.address, plans, advance))
    leaks = stand.leaks_at_rest()
    outcomes = Counter(one.outcome for one in told)
    patient = [one for one, plan in zip(told, plans, strict=True) if plan == Plan()]
    figures: dict[str, float | None] = {
        "storm_turns": float(len(told)),
        "storm_not_answered_once": float(sum(not one.answered_once for one in told)),
        "storm_cross_talk": float(sum(not one.is_its_own for one in told)),
        "storm_untyped_errors": float(outcomes["UNTYPED"]),
        "storm_patient_answered_share": sum(one.outcome == "ok" for one in patient) / len(patient),
        "storm_leaks": float(sum(leaks.values())),
        "storm_shm_growth_mb": (stand.shm_bytes() - shm_before) / 1e6,
    }
    wrong = [(one.turn_id, str(one.error)) for one in told if one.outcome == "UNTYPED"]
    return Found(figures, {"outcomes": dict(outcomes), "leaks": leaks, "untyped": wrong[:5]})


async def _spoken(address: str, plans: list[Plan], advance: Callable[[int], None]) -> list[Told]:
    """Every plan carried out, by so many people at once, in order."""
    caller, waiting = Caller(address), iter(list(enumerate(plans)))
    found: dict[int, Told] = {}

    async def person() -> None:
        for number, plan in waiting:
            found[number] = await caller.speak(
                deadline_ms=plan.deadline_ms,
                leave_after_s=plan.leave_after_s,
                disconnect=plan.disconnect,
            )
            advance(1)

    await asyncio.gather(*(person() for _ in range(PEOPLE)))
    await caller.close()
    return [found[number] for number in sorted(found)]
