"""Bytes: what does not fit is not loaded, what is loaded takes what it declares, and who wants more
than a stage has fails alone. On a server of its own, with real weights.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, Final

import numpy as np
import psutil
from numpy.typing import NDArray

from client import audio
from client.turns import TurnClient
from deploy.budget import SERVER_BYTES, TRITONSERVER, model_bytes, needed_bytes, planned
from deploy.cluster import Cluster
from deploy.errors import BytesUnfit, PlanError
from deploy.figures import read_metrics, rows
from deploy.launcher import Server
from deploy.load import send
from deploy.plan import DevicePlan, Plan, find
from deploy.reconcile import Row, under_load
from deploy.repositories import Model, read_models, to_load
from deploy.settings import OUT, REPOSITORIES, Settings
from loadtest.engine.figures import Found
from loadtest.seed.experiment import ROOT
from python_backends import wire
from python_backends.declared import Declared
from python_backends.errors import InvalidInput, StageError
from python_backends.sizes import told_bytes

STEPS: Final = 4
PLAN: Final = "three-servers"
DEVICE: Final = "all"
ORDER: Final = ROOT / "samples" / "order-1.wav"
CALLERS: Final = 4
SETTLE_S: Final = 5.0
PATIENCE_S: Final = 0.2

Arrays = dict[str, NDArray[Any]]


def budgets(random: Random, advance: Callable[[int], None]) -> Found:
    """See the module."""
    models = read_models(REPOSITORIES, {})
    refusals = [_plan_is_refused(models), _server_is_refused(models)]
    advance(1)
    with Server() as server:
        declared = _declared(server)
        outcomes, spoilt = _too_much(server, declared, random)
        advance(1)
        taken = under_load(server)
        advance(1)
        left = _left_at_rest(server)
        advance(1)
    stages = [row for row in taken if row.name != TRITONSERVER]
    ratios = [row.ratio for row in stages]
    figures: dict[str, float | None] = {
        "bytes_refused_before_load": float(all(not missing for missing in refusals)),
        "bytes_over_budget_failed_alone": float(
            not spoilt and all(_is_right(stage, error) for stage, error in outcomes.items())
        ),
        "bytes_measured_by_declared_min": min(ratios),
        "bytes_measured_by_declared_max": max(ratios),
        "bytes_server_measured_by_declared": taken[-1].ratio,
        "bytes_left_at_rest": float(sum(left.values())),
    }
    detail = {
        "refusals_missing": refusals,
        "over_budget": {stage: str(error and error.to_wire()) for stage, error in outcomes.items()},
        "spoilt": spoilt,
        "models": {row.name: row.as_json() for row in taken},
        "not_measured": _not_measured(declared, taken),
        "left": left,
    }
    return Found(figures, detail)


def _plan_is_refused(models: Mapping[str, Model]) -> list[str]:
    """A plan whose device has a byte too few: what its refusal lacks, or does too much."""
    given = Plan.read(find(PLAN))
    servers = {
        name: server.model_copy(update={"device": DEVICE}) for name, server in given.servers.items()
    }
    plan = given.model_copy(update={"servers": servers, "devices": {DEVICE: DevicePlan()}})
    occupants = list(planned(plan, models))
    total = sum(one.count * needed_bytes(plan, models, one.view) for one in occupants)
    tight = plan.model_copy(update={"devices": {DEVICE: DevicePlan(bytes=total - 1)}})
    own = {name for one in occupants for name in one.view.own if name != one.name}
    return _refused(lambda: Cluster(tight).start(), PlanError, own, models)


def _server_is_refused(models: Mapping[str, Model]) -> list[str]:
    """The same of one server with a byte too few."""
    loads = to_load(models)
    total = SERVER_BYTES + sum(model_bytes(models[name], models) for name in loads)
    server = Server(Settings(bytes=total - 1))
    return _refused(server.start, BytesUnfit, loads, models)


def _refused(
    start: Callable[[], object],
    kind: type[Exception],
    loads: Sequence[str] | set[str],
    models: Mapping[str, Model],
) -> list[str]:
    """What is wrong with a refusal: models whose bytes it does not name, processes, folders."""
    before = _started()
    try:
        start()
    except kind as refusal:
        told = str(refusal)
    else:
        return ["it was started"]
    wanted = [
        f"{name} {told_bytes(model_bytes(models[name], models))}"
        for name in sorted(loads)
        if models[name].config.platform != "ensemble"
    ]
    return [*(one for one in wanted if one not in told), *sorted(_started() - before)]


def _started() -> set[str]:
    """Processes of ours, and folders of runs."""
    children = psutil.Process().children(recursive=True)
    return {str(one.pid) for one in children} | {folder.name for folder in OUT.glob("run-*")}


def _declared(server: Server) -> dict[str, Declared]:
    found = {name: Declared.of(server.model(name).parameters) for name in server.models}
    return {name: one for name, one in found.items() if one is not None}


def _too_much(
    server: Server, declared: Mapping[str, Declared], random: Random
) -> tuple[dict[str, StageError | None], list[str]]:
    """One request beyond the bytes of each stage with a queue, while people order: what each such
    request failed with, and what those people got that was wrong."""
    sound = audio.read(ORDER)
    huge = [_huge(stage, declared[stage]) for stage in ("encode", "think", "prosody", "acoustic")]
    random.shuffle(huge)
    with TurnClient(server.grpc_address) as client, ThreadPoolExecutor(CALLERS) as threads:
        wanted = client.transcribe(sound).text
        orders = [threads.submit(_heard, client, sound) for _ in range(CALLERS)]
        time.sleep(PATIENCE_S)
        errors = send(server, huge)
        heard = [order.result() for order in orders]
    outcomes = {request.model_name: error for request, error in zip(huge, errors, strict=True)}
    return outcomes, [one for one in heard if one != wanted]


def _heard(client: TurnClient, sound: NDArray[np.float32]) -> str:
    """What an order was taken for, or why it failed."""
    try:
        heard = [chunk.heard for chunk in client.turn(sound)]
    except StageError as error:
        return error.to_wire()
    return next(iter(heard), "")


def _huge(stage: str, declared: Declared) -> Any:
    """A request whose inputs take more than the stage has for all of its requests."""
    nbytes = declared.requests // declared.per_input + 1
    word = np.array([[b"a" * nbytes]], np.object_)
    inputs: dict[str, Arrays] = {
        "encode": {"AUDIO": np.zeros((1, nbytes // 4 + 1), np.float32)},
        "think": {"HEARD": word},
        "prosody": {"TEXT": word},
        "acoustic": {"PROSODY": np.zeros((1, nbytes // 12 + 1, 3), np.int32)},
    }
    return wire.to_request(stage, inputs[stage], turn=f"huge-{stage}", parameters={})


def _is_right(stage: str, error: StageError | None) -> bool:
    """It was refused by that stage, for its bytes, for good."""
    if not isinstance(error, InvalidInput):
        return False
    return (error.stage, error.reason) == (stage, "bytes")


def _left_at_rest(server: Server) -> dict[str, float]:
    """Bytes that stages still have taken when all requests have ended."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        left = {
            f"{row.stage} {row.labels['part']}": row.value
            for row in rows(read_metrics(server.metrics_address))
            if row.name == "tristage_stage_bytes" and row.labels["kind"] == "used" and row.value
        }
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(PATIENCE_S)


def _not_measured(declared: Mapping[str, Declared], taken: Sequence[Row]) -> list[str]:
    """Models that declare bytes and whose process was never seen."""
    return sorted(declared.keys() - {row.name for row in taken})
