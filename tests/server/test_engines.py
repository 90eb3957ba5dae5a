"""One artefact behind BLS and in the loop's own process says the same, on the real server."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from deploy.launcher import Server
from deploy.settings import Settings
from python_backends import wire
from tests.server.asking import Ask, Said, ask, asking

pytestmark = pytest.mark.server

HEARD = [
    "I would like two cheeseburgers and a large Coke please.",
    "Do you have pizza?",
    "Can I get three tacos and a small lemonade?",
    "No thanks, that is all.",
]


def answers(address: str) -> list[Said]:
    """All answers, asked for at once."""
    turns = [f"engines-{number}" for number in range(len(HEARD))]
    with asking(address) as stub, ThreadPoolExecutor(len(HEARD)) as pool:
        return list(pool.map(partial(ask, stub), HEARD, turns))


@pytest.fixture(scope="module")
def behind_bls() -> Iterator[Server]:
    """Whole prompts are one command here, so that commands are as many as decode steps."""
    think = {"engine": "bls", "session_bytes": "0", "prefill_chunk": "320", "lone_chunk": "320"}
    overrides = {"think": think}
    with Server(Settings(models=["think"], overrides=overrides)) as running:
        yield running


@pytest.fixture(scope="module")
def two_engines() -> Iterator[Server]:
    with Server(Settings(models=["think"], overrides={"think": {"engines": "2"}})) as running:
        yield running


def test_all_engines_say_the_same(server: Server, behind_bls: Server, two_engines: Server) -> None:
    assert "think_step" in behind_bls.models
    assert "think_step" not in two_engines.models
    said = answers(server.grpc_address)
    assert answers(behind_bls.grpc_address) == said
    assert answers(two_engines.grpc_address) == said
    assert all(one.status == "stop" for one in said)


def test_concurrent_answers_share_decode_steps(behind_bls: Server) -> None:
    with asking(behind_bls.grpc_address) as stub:
        before = _executions(stub)
        answers(behind_bls.grpc_address)
        together = _executions(stub) - before
        before = _executions(stub)
        for number, heard in enumerate(HEARD):
            ask(stub, heard, f"engines-{number}")
        apart = _executions(stub) - before
    assert together < 0.7 * apart


def test_commands_of_a_stranger_are_refused(behind_bls: Server) -> None:
    inputs = {"COMMAND": np.array([[12_345]], np.int64)}
    request = wire.to_request("think_step", inputs, turn="stranger", parameters={})
    with asking(behind_bls.grpc_address) as stub, pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(request)
    assert "came where" in refused.value.details()


def test_history_that_is_not_a_conversation_is_refused(server: Server) -> None:
    inputs = {
        "HEARD": np.array([[b"hello"]], np.object_),
        "HISTORY": np.array([[json.dumps({"role": "user"}).encode()]], np.object_),
    }
    request = wire.to_request("think", inputs, turn="odd", parameters={})
    with asking(server.grpc_address) as stub:
        message = next(iter(stub.ModelStreamInfer(iter([request]))))
    assert "code=INVALID_INPUT" in message.error_message


def _executions(stub: Ask) -> int:
    """Commands that `think_step` has run."""
    statistics = stub.ModelStatistics(service_pb2.ModelStatisticsRequest(name="think_step"))
    return int(statistics.model_stats[0].execution_count)
