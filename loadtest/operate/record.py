"""A story for the dashboard: `python -m loadtest.operate.record` plays it on an emulated server.

More and more people come; at the most there are more than can be served. Then a stage is killed,
and comes back. Written are the answers of a real Prometheus to every query of the dashboard, under
the shipped rules with their times divided by FACTOR, so that two minutes look like a quarter of
an hour.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from deploy.observe.dashboard import ROWS
from loadtest.chaos.caller import Caller, Told, crowd
from loadtest.operate.alerts import HEALTHY, Stand, asking, standing
from loadtest.operate.prometheus import Prometheus, scraping

TARGET: Final = Path(__file__).parent / "recorded.json"
FACTOR: Final = 6
STEP_S: Final = 2.0
ACTS: Final = ((3, 20.0), (16, 25.0), (40, 25.0), (110, 30.0), (8, 25.0))
"""People, and for how many s."""

KILLED_AFTER_S: Final = 8.0
"""In the last act."""

HELD_SAMPLES: Final = 45_000
"""Of a request that a stage holds from each act on."""

Answers = dict[str, list[dict[str, Any]]]
"""Query -> its series, as Prometheus's HTTP API has them."""


def filled(expression: str) -> str:
    """A query of the dashboard for everything there is."""
    return expression.replace("$job", ".*").replace("$stage", ".*")


def record() -> dict[str, Any]:
    """Plays it; what there is to draw."""
    fault = replace(HEALTHY, kept=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        standing(fault, Path(folder)) as stand,
        scraping(stand.server.metrics_address, Path(folder) / "prometheus", FACTOR) as prometheus,
    ):
        began = time.time()
        asyncio.run(_play(stand))
        return {
            "start_s": round(began),
            "end_s": round(time.time()),
            "step_s": STEP_S,
            "answers": _answers(prometheus, began, time.time()),
        }


async def _play(stand: Stand) -> None:
    async with asking(stand) as ask:
        await _acts(stand, ask)


async def _acts(stand: Stand, ask: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """`ask` has a stage hold some of its bytes."""
    caller, told = Caller(stand.server.grpc_address), list[Told]()
    held: list[asyncio.Task[None]] = []
    for number, (people, seconds) in enumerate(ACTS, 1):
        held.append(asyncio.create_task(ask(HELD_SAMPLES)))
        act = asyncio.create_task(crowd(caller, people, time.monotonic() + seconds, told))
        if number == len(ACTS):
            await asyncio.sleep(KILLED_AFTER_S)
            stand.kill("emu_think")
        await act
    await caller.close()
    await asyncio.sleep(5)
    for one in held:
        one.cancel()


def _answers(prometheus: Prometheus, start_s: float, end_s: float) -> Answers:
    queries = [line.expr for row in ROWS for panel in row.panels for line in panel.lines]
    return {
        query: _rounded(prometheus.query_range(filled(query), start_s, end_s, STEP_S))
        for query in dict.fromkeys(queries)
    }


def _rounded(series: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "metric": one["metric"],
            "values": [[round(at), float(f"{float(value):.4g}")] for at, value in one["values"]],
        }
        for one in series
    ]


if __name__ == "__main__":
    TARGET.write_text(json.dumps(record(), separators=(",", ":")) + "\n")
