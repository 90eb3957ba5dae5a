"""Stages are upgraded and rolled back while people speak: nobody may notice.

On the emulated device: think, the stage that locks batches of diffusion steps, and listening, each
with a version of its own, and every turn has spans that tell which version it passed.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress

from deploy.errors import DeployError
from deploy.rolling.change import Terms
from loadtest.chaos.caller import Caller, Told, percentile
from loadtest.engine.figures import Found
from loadtest.operate.stand import (
    STAGES,
    Stand,
    is_mixed,
    release,
    standing,
    versions_of,
)
from loadtest.seed.figures import at_least, at_most

PEOPLE: Final = 24
WARM_UP_S: Final = 6.0
CALM_S: Final = 3.0
MOST_ROUNDS: Final = 2
"""Each is more than a minute."""

TERMS: Final = Terms(trial_s=1.5, drain_s=60.0)
UPGRADE, ROLLBACK = "upgrade", "rollback"
NS: Final = 1_000_000_000
MAX_PAUSE_MS: Final = 300.0
"""Of the 95th percentile of first audio; loading a model takes a core of the callers' machine."""

TARGETS: Final = {
    "upgrade_changes": at_least(2 * len(STAGES)),
    "upgrade_turns_met": at_least(100),
    "upgrade_failed_turns": at_most(0),
    "rollback_failed_turns": at_most(0),
    "upgrade_mixed_turns": at_most(0),
    "upgrade_not_as_told": at_most(0),
    "upgrade_pause_ms": at_most(MAX_PAUSE_MS),
}


@dataclass(frozen=True)
class Change:
    """One upgrade or rollback. Times are time.monotonic_ns."""

    kind: str
    stage: str
    since_ns: int
    until_ns: int
    version: int
    """That served afterwards."""

    error: str = ""

    def met(self, told: Told) -> bool:
        """The turn was open meanwhile."""
        return told.sent_ns <= self.until_ns and told.end_ns >= self.since_ns


def upgrade(folder: Path, rounds: int, progress: Progress) -> Found:
    """See the module."""
    rounds = min(rounds, MOST_ROUNDS)
    task = progress.add_task(UPGRADE, total=2 * len(STAGES) * rounds, told="")
    with standing(folder / "servers") as stand:
        changes, told = asyncio.run(
            _under_load(stand, folder / "releases", rounds, lambda: progress.advance(task))
        )
    return Found(figures(changes, told), detail(changes, told))


async def _under_load(
    stand: Stand, folder: Path, rounds: int, advance: Callable[[], None]
) -> tuple[list[Change], list[Told]]:
    caller, told, changes = Caller(stand.server.grpc_address), list[Told](), list[Change]()
    over = asyncio.Event()

    async def person() -> None:
        while not over.is_set():
            told.append(one := await caller.speak())
            if one.error is not None:
                await asyncio.sleep((one.error.retry_after_ms or 100) / 1000)

    people = [asyncio.create_task(person()) for _ in range(PEOPLE)]
    try:
        await asyncio.sleep(WARM_UP_S)
        for number in range(rounds):
            for stage in STAGES:
                new = release(folder / f"{stage}-{number}", [stage], f"release {number}")
                for kind, act in _acts(stand, stage, new):
                    changes.append(await _changed(stand, kind, stage, act))
                    await asyncio.sleep(CALM_S)
                    advance()
    finally:
        over.set()
        await asyncio.gather(*people)
        await caller.close()
    return changes, told


def _acts(stand: Stand, stage: str, new: Path) -> Sequence[tuple[str, Callable[[], None]]]:
    return (
        (UPGRADE, lambda: stand.upgrades.upgrade([stage], folder=new, terms=TERMS)),
        (ROLLBACK, lambda: stand.upgrades.rollback(stage, TERMS)),
    )


async def _changed(stand: Stand, kind: str, stage: str, act: Callable[[], None]) -> Change:
    since_ns, error = time.monotonic_ns(), ""
    try:
        await asyncio.to_thread(act)
    except DeployError as failure:
        error = str(failure)
    until_ns = time.monotonic_ns()
    rows = await asyncio.to_thread(stand.upgrades.versions)
    serving = [row.version for row in rows if row.stage == stage and row.phase == "serving"]
    return Change(kind, stage, since_ns, until_ns, serving[0], error)


def figures(changes: Sequence[Change], told: Sequence[Told]) -> dict[str, float | None]:
    """What is asked of upgrades. Pure."""
    failed = {
        kind: sum(one.outcome != "ok" and _met(one, changes, kind) for one in told)
        for kind in (UPGRADE, ROLLBACK)
    }
    calm = [_first_ms(one) for one in told if one.chunks_ns and not _met(one, changes)]
    during = [_first_ms(one) for one in told if one.chunks_ns and _met(one, changes)]
    return {
        "upgrade_changes": float(len(changes)),
        "upgrade_turns": float(len(told)),
        "upgrade_turns_met": float(sum(_met(one, changes) for one in told)),
        "upgrade_failed_turns": float(failed[UPGRADE]),
        "rollback_failed_turns": float(failed[ROLLBACK]),
        "upgrade_mixed_turns": float(sum(is_mixed(one) for one in told)),
        "upgrade_not_as_told": float(
            sum(bool(one.error) for one in changes) + _elsewhere(changes, told)
        ),
        "upgrade_seconds_max": max((one.until_ns - one.since_ns) / NS for one in changes),
        "upgrade_calm_first_audio_p95_ms": percentile(calm, 95),
        "upgrade_during_first_audio_p95_ms": percentile(during, 95),
        "upgrade_pause_ms": percentile(during, 95) - percentile(calm, 95),
    }


def detail(changes: Sequence[Change], told: Sequence[Told]) -> dict[str, Any]:
    """For the picture and for readers. Pure; seconds since the first turn."""
    began_ns = min((one.sent_ns for one in told), default=0)
    return {
        "people": PEOPLE,
        "outcomes": dict(Counter(one.outcome for one in told)),
        "errors": sorted({str(one.error) for one in told if one.error is not None})[:5],
        "changes": [
            {
                "kind": one.kind,
                "stage": one.stage,
                "since_s": (one.since_ns - began_ns) / NS,
                "until_s": (one.until_ns - began_ns) / NS,
                "version": one.version,
                "error": one.error,
            }
            for one in changes
        ],
        "turns": [
            [
                (one.sent_ns - began_ns) / NS,
                _first_ms(one),
                one.said[0].rsplit(" ", 1)[0],
            ]
            for one in told
            if one.chunks_ns
        ],
    }


def _first_ms(told: Told) -> float:
    return (told.chunks_ns[0] - told.sent_ns) / 1e6


def _met(told: Told, changes: Sequence[Change], kind: str = "") -> bool:
    return any(one.met(told) for one in changes if kind in ("", one.kind))


def _elsewhere(changes: Sequence[Change], told: Sequence[Told]) -> int:
    """Turns that began when a change was done, before the next one, and passed another version."""
    bounds = [*(one.since_ns for one in changes[1:]), time.monotonic_ns()]
    return sum(
        versions_of(one, change.stage) != {str(change.version)}
        for change, next_ns in zip(changes, bounds, strict=True)
        for one in told
        if one.outcome == "ok" and change.until_ns < one.sent_ns and one.end_ns < next_ns
    )
