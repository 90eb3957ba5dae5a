"""Four times as many turns as can be served: promises are kept, the rest is refused at once."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from loadtest.chaos.caller import Caller, Told, crowd, percentile
from loadtest.chaos.stand import Stand
from loadtest.engine.figures import Found

PATIENCE_MS: Final = 6000
"""A turn that is answered later is worth nothing; the profile's client waits as long."""

CROWDS: Final = (32, 64)
CROWD_S: Final = 15.0
WARM_UP_S: Final = 4.0
OVERLOAD: Final = 4.0
SECONDS: Final = 120.0
LONE_TURNS: Final = 3
AFTER_S: Final = 10.0
NORMAL: Final = 1.5
"""A lone turn that takes at most so many times what it took before is normal again."""


def overload(stand: Stand, random: Random, advance: Callable[[int], None]) -> Found:
    """See the module. Goodput counts turns that were answered within `PATIENCE_MS`."""
    lone_s = min(one.seconds for one in asyncio.run(_alone(stand.address, LONE_TURNS)))
    best = 0.0
    for people in CROWDS:
        best = max(best, asyncio.run(_capacity(stand.address, people)))
        advance(1)
    rss_before = stand.rss_bytes()
    told, after = asyncio.run(_flood(stand, random, OVERLOAD * best))
    advance(1)
    rss_after = stand.rss_bytes()
    leaks = stand.leaks_at_rest()
    settled = told[len(told) // 20 :]
    good = [one for one in settled if _is_good(one)]
    span_s = (settled[-1].sent_ns - settled[0].sent_ns) / 1e9
    refused = [one for one in told if one.outcome == "OVERLOADED"]
    refusal_ms = [1000 * one.seconds for one in refused]
    untold = [one for one in refused if one.error and not one.error.reason]
    figures: dict[str, float | None] = {
        "overload_best_per_s": best,
        "overload_goodput_per_s": len(good) / span_s,
        "overload_goodput_by_best": len(good) / span_s / best,
        "overload_turns": float(len(told)),
        "overload_not_answered_once": float(sum(not one.answered_once for one in told)),
        "overload_untyped_errors": float(sum(one.outcome == "UNTYPED" for one in told)),
        "overload_refusal_ms_p50": percentile(refusal_ms, 50),
        "overload_refusal_ms_p95": percentile(refusal_ms, 95),
        "overload_refusal_ms_p99": percentile(refusal_ms, 99),
        "overload_refusals_without_reason": float(len(untold)),
        "overload_rss_growth_share": rss_after / rss_before - 1,
        "overload_normal_again_s": _normal_again_s(after, NORMAL * lone_s),
        "overload_leaks": float(sum(leaks.values())),
    }
    outcomes = Counter(one.outcome for one in told)
    reasons = Counter(one.error.reason for one in refused if one.error)
    failed = Counter(str(one.error) for one in told if one.outcome == "STAGE_FAILED")
    late = [one.seconds for one in told if one.outcome == "ok"]
    detail = {
        "lone_s": lone_s,
        "outcomes": dict(outcomes),
        "reasons": dict(reasons),
        "failed": dict(failed.most_common(5)),
        "answered_s_p50": percentile(late, 50),
        "answered_s_p95": percentile(late, 95),
        "after": [(round(at_s, 2), round(one.seconds, 2)) for at_s, one in after],
        "leaks": leaks,
    }
    return Found(figures, detail)


async def _alone(address: str, turns: int) -> list[Told]:
    caller = Caller(address)
    found = [await caller.speak() for _ in range(turns)]
    await caller.close()
    return found


async def _capacity(address: str, people: int) -> float:
    """Turns a second that so many people are answered in time."""
    caller, told = Caller(address), list[Told]()
    began = time.monotonic()
    await crowd(caller, people, began + WARM_UP_S + CROWD_S, told)
    await caller.close()
    from_ns, to_ns = (round(1e9 * (began + s)) for s in (WARM_UP_S, WARM_UP_S + CROWD_S))
    return sum(_is_good(one) and from_ns <= one.end_ns < to_ns for one in told) / CROWD_S


async def _flood(
    stand: Stand, random: Random, rate: float
) -> tuple[list[Told], list[tuple[float, Told]]]:
    """All turns in the order they were sent, and lone ones after the flood: when each began, in s
    since its end."""
    caller, tasks = Caller(stand.address), list[asyncio.Task[Told]]()
    due_s = began = time.monotonic()
    while due_s < began + SECONDS:
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        tasks.append(asyncio.create_task(caller.speak(deadline_ms=PATIENCE_MS)))
        due_s += random.expovariate(rate)
    ended, after = time.monotonic(), list[tuple[float, Told]]()
    while time.monotonic() < ended + AFTER_S:
        at_s = time.monotonic() - ended
        after.append((at_s, await caller.speak()))
    told = await asyncio.gather(*tasks)
    await caller.close()
    return list(told), after


def _is_good(told: Told) -> bool:
    return told.outcome == "ok" and 1000 * told.seconds <= PATIENCE_MS


def _normal_again_s(after: Sequence[tuple[float, Told]], normal_s: float) -> float:
    """When the first turn ended that took no longer than normal, in s since the flood's end."""
    ends = [at + told.seconds for at, told in after if told.outcome == "ok"]
    quick = [
        end
        for end, (_, told) in zip(ends, [a for a in after if a[1].outcome == "ok"], strict=True)
        if told.seconds <= normal_s
    ]
    return min(quick, default=1000.0)
