"""Whether a version that is loaded does: it is asked before any caller, and watched behind them."""

import time
import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deploy import figures
from deploy.errors import ServerFailed
from deploy.launcher import Server
from deploy.readiness import Probe
from deploy.rolling.policy import Seen
from deploy.stubs import kill, stubs
from python_backends import wire

TIMEOUT_S: Final = 60.0
END_S: Final = 10.0
LOOK_S: Final = 0.1
FAULT: Final = "STAGE_FAILED"
"""The outcome of a request that is the stage's own fault."""

UNANSWERED: Final = ("CANCELLED", "DEADLINE_MISSED", "OVERLOADED")
"""Outcomes of requests that are nobody's fault, and how those end that hang."""

MOVES: Final = ("tristage_first_chunk_seconds_count", "tristage_step_seconds_count")
"""What grows while answers are made."""

FRAMES: Final = 16
FIRST: Final[dict[str, NDArray[Any]]] = {
    "AUDIO": np.zeros((1, 16_000), np.float32),
    "HEARD": np.array([[b"Hello, two burgers please."]], np.object_),
    "TEXT": np.array([[b"Welcome!"]], np.object_),
    "PROSODY": np.full((1, 4, 3), [[20, FRAMES, 10]], np.int32),
}
"""A short request to a stage: as much of it as the stage takes."""


def try_out(probe: Probe, config: Any, like: Any = None) -> None:
    """A probe, and a real request if the model `like` it answers that well; ServerFailed when one
    of them is not."""
    probe.infer(config, TIMEOUT_S)
    if like is not None and (request := _first(like)) is not None:
        with suppress(ServerFailed):
            probe.ask(request, TIMEOUT_S)
            request.model_name = config.name
        if request.model_name == config.name:
            probe.ask(request, TIMEOUT_S)


def _first(config: Any) -> Any:
    """A short real request, where one can be made."""
    names = {tensor.name for tensor in config.input}
    given = {name: values for name, values in FIRST.items() if name in names}
    needed = {tensor.name for tensor in config.input if not tensor.optional}
    if not given or not needed <= given.keys():
        return None
    return wire.to_request(config.name, given, turn=f"try-{uuid.uuid4().hex[:8]}", parameters={})


def processes(server: Server, models: Collection[str]) -> set[int]:
    """Pids of what serves them."""
    return {stub.pid for stub in stubs(server.pid, models)}


def end(server: Server, models: Collection[str]) -> list[int]:
    """Once their models have been unloaded: wait for their processes, and kill those that do not
    end, since a hung one never does; the pids of these."""
    deadline = time.monotonic() + END_S
    while left := stubs(server.pid, models):
        if time.monotonic() > deadline:
            for stub in left:
                kill(stub)
            return [stub.pid for stub in left]
        time.sleep(LOOK_S)
    return []


def seen(server: Server, stage: str, version: int, models: Collection[str], pids: set[int]) -> Seen:
    """What a version of a stage has answered; a native backend tells nothing of that. ServerFailed
    when the server does not tell."""
    told = figures.rows(figures.read_metrics(server.metrics_address), version)
    mine = [row for row in told if row.stage == stage]
    ended = {
        row.labels.get("outcome"): row.value
        for row in mine
        if row.name == "tristage_requests_total"
    }
    failed, unanswered = ended.get(FAULT, 0.0), sum(ended.get(one, 0.0) for one in UNANSWERED)
    return Seen(
        ok=round(sum(ended.values()) - failed - unanswered),
        failed=round(failed),
        alive=pids == processes(server, models),
        unanswered=round(unanswered),
        moved=_sum(mine, *MOVES),
        open=_sum(mine, "tristage_open_requests"),
    )


def _sum(rows: Sequence[figures.Row], *names: str) -> int:
    return round(sum(row.value for row in rows if row.name in names))
