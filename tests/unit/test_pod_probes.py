"""Which stages of a pod are asked, how, and what a probe says of one that hangs."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from deploy.keeper import Keeper
from deploy.launcher import Server
from deploy.pod import probes
from deploy.pod.health import READY, Health
from deploy.pod.probes import Manner, asking, graphs
from deploy.readiness import Probe
from deploy.repositories import Model, read_models, with_proxies
from deploy.settings import REPOSITORIES, Ports, Settings
from tests.unit.fake_triton import Message, end, failure, serving

PATIENCE_S = 5.0


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return with_proxies(read_models(REPOSITORIES, {}), ["encode", "acoustic"])


class Kept:
    """A keeper, as far as it is asked."""

    def __init__(self, address: str, *models: Model) -> None:
        ports = Ports(http=1, grpc=int(address.rpartition(":")[2]), metrics=2)
        self.server = Server(Settings(ports=ports, admin_key=""))
        self.server.take_up(*models)
        self.phase = "ready"


class Stages:
    """Answers, hangs or fails, model by model; and counts."""

    def __init__(self) -> None:
        self.hung: set[str] = set()
        self.dead: set[str] = set()
        self.asked: list[str] = []

    def answer(self, request: Any, context: Any) -> Iterator[Message]:
        name = request.model_name
        self.asked.append(name)
        while name in self.hung and context.is_active():
            time.sleep(0.005)
        yield failure(request, "its stub is not healthy") if name in self.dead else end(request)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(probes, "GRAPHS", Manner(0.02, 0.2, 60.0))
    monkeypatch.setattr(Probe, "server_is_ready", lambda self: True)


@contextmanager
def asked(stages: Stages, *models: Model) -> Iterator[tuple[Kept, Health]]:
    health = Health()
    with serving(stages.answer) as (_, address):
        keeper = Kept(address, *models)
        with asking(cast(Keeper, keeper), health):
            yield keeper, health


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def why(health: Health) -> list[str]:
    return health.why_not(READY, time.monotonic())


def test_what_has_no_queue_of_its_own_is_given_something_to_compute(
    models: dict[str, Model],
) -> None:
    names = ["turn", "voice_turn", "think", "encode", "vocoder", "asr_encoder", "vad", "think_step"]
    server = Kept("x:3", *(models[name] for name in names)).server
    assert set(graphs(server)) == {"vocoder", "asr_encoder", "vad", "think_step"}


def test_a_graph_that_hangs_is_named_until_it_answers(models: dict[str, Model]) -> None:
    stages = Stages()
    with asked(stages, models["vocoder"], models["think"]) as (_, health):
        until(lambda: {"vocoder", "think"} <= set(stages.asked))
        assert why(health) == []
        stages.hung.add("vocoder")
        until(lambda: why(health) != [])
        assert why(health) == ["stage 'vocoder': model 'vocoder' gave no answer: Deadline Exceeded"]
        stages.hung.clear()
        until(lambda: why(health) == [])


def test_a_graph_that_hangs_keeps_no_other_stage_from_being_asked(models: dict[str, Model]) -> None:
    stages = Stages()
    stages.hung.add("vocoder")
    with asked(stages, models["vocoder"], models["think"]):
        until(lambda: stages.asked.count("think") > 5)
        stages.hung.clear()


def test_a_dead_graph_is_named_at_once_and_a_new_server_is_judged_anew(
    models: dict[str, Model],
) -> None:
    stages = Stages()
    stages.dead.add("vocoder")
    with asked(stages, models["vocoder"]) as (keeper, health):
        until(lambda: any("not healthy" in reason for reason in why(health)))
        keeper.phase = "down"
        until(lambda: why(health) == ["the server is down"])
        stages.dead.clear()
        keeper.phase = "ready"
        until(lambda: why(health) == [])
