"""The same load for a long time: nothing grows, and nothing becomes slower."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Final

from loadtest.chaos.caller import Caller, Told, crowd
from loadtest.chaos.stand import Stand
from loadtest.engine.figures import Found

PEOPLE: Final = 32
WARM_UP_S: Final = 20.0
LOOK_S: Final = 5.0
MINUTE_S: Final = 60.0


def soak(stand: Stand, seconds: float, advance: Callable[[int], None]) -> Found:
    """See the module."""
    told, sizes, began_ns = asyncio.run(_loaded(stand, seconds, advance))
    leaks = stand.leaks_at_rest()
    counted = [one for one in told if one.sent_ns >= began_ns]
    minute_s = min(MINUTE_S, seconds / 2)
    first = _rate(counted, began_ns, minute_s)
    last = _rate(counted, began_ns + round(1e9 * (seconds - minute_s)), minute_s)
    quarter = max(1, len(sizes) // 4)
    rss = [median(one[0] for one in part) for part in (sizes[:quarter], sizes[-quarter:])]
    shm = [median(one[1] for one in part) for part in (sizes[:quarter], sizes[-quarter:])]
    figures: dict[str, float | None] = {
        "soak_minutes": seconds / 60,
        "soak_turns": float(len(counted)),
        "soak_not_answered_once": float(sum(not one.answered_once for one in counted)),
        "soak_failed_turns": float(sum(one.outcome != "ok" for one in counted)),
        "soak_rss_growth_share": rss[1] / rss[0] - 1,
        "soak_shm_growth_mb": (shm[1] - shm[0]) / 1e6,
        "soak_first_minute_per_s": first,
        "soak_last_by_first_minute": last / first,
        "soak_leaks": float(sum(leaks.values())),
    }
    outcomes = Counter(one.outcome for one in counted)
    return Found(figures, {"outcomes": dict(outcomes), "sizes": sizes, "leaks": leaks})


async def _loaded(
    stand: Stand, seconds: float, advance: Callable[[int], None]
) -> tuple[list[Told], list[tuple[int, int]], int]:
    """All turns; memory of the processes and /dev/shm every few seconds; when it began to count."""
    caller, told, sizes = Caller(stand.address), list[Told](), list[tuple[int, int]]()
    until_s = time.monotonic() + WARM_UP_S + seconds
    load = asyncio.create_task(crowd(caller, PEOPLE, until_s, told))
    await asyncio.sleep(WARM_UP_S)
    began_ns = time.monotonic_ns()
    while time.monotonic() < until_s:
        await asyncio.sleep(LOOK_S)
        sizes.append((stand.rss_bytes(), stand.shm_bytes()))
        advance(round(LOOK_S))
    await load
    await caller.close()
    return told, sizes, began_ns


def _rate(told: list[Told], from_ns: int, seconds: float) -> float:
    """Answers a second."""
    to_ns = from_ns + round(1e9 * seconds)
    return sum(one.outcome == "ok" and from_ns <= one.end_ns < to_ns for one in told) / seconds
