"""Byte budgets on the real server: who goes beyond one fails alone, and all of them are told."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from client import audio
from client.turns import TurnClient
from deploy.figures import read_metrics, rows
from deploy.launcher import Server
from deploy.load import send
from deploy.reconcile import as_they_are
from python_backends import wire
from python_backends.declared import Declared
from python_backends.errors import InvalidInput

pytestmark = pytest.mark.server
ORDER = Path(__file__).parents[2] / "samples" / "order-1.wav"
SOON_S = 5.0


def declared(server: Server, name: str) -> Declared:
    found = Declared.of(server.model(name).parameters)
    assert found is not None
    return found


def told(server: Server) -> dict[tuple[str, str, str], float]:
    """Stage, part and kind to bytes."""
    return {
        (row.stage, row.labels["part"], row.labels["kind"]): row.value
        for row in rows(read_metrics(server.metrics_address))
        if row.name == "tristage_stage_bytes"
    }


def test_a_request_over_its_stages_budget_fails_alone_while_others_are_served(
    server: Server,
) -> None:
    room = declared(server, "encode")
    samples = room.requests // room.per_input // 4 + 1
    huge = {"AUDIO": np.zeros((1, samples), np.float32)}
    sound = audio.read(ORDER)
    with TurnClient(server.grpc_address) as client, ThreadPoolExecutor(1) as pool:
        turn = pool.submit(lambda: list(client.turn(sound)))
        (error,) = send(server, [wire.to_request("encode", huge, turn="huge", parameters={})])
        assert any("cheeseburgers" in chunk.heard for chunk in turn.result())
    assert isinstance(error, InvalidInput)
    assert (error.reason, error.stage) == ("bytes", "encode")
    assert str(room.requests) in error.message


def test_what_is_declared_is_told_and_nothing_of_it_is_taken_when_all_has_ended(
    server: Server,
) -> None:
    for stage in ("turn", "encode", "asr_decode", "think", "prosody", "acoustic"):
        for part, nbytes in declared(server, stage).parts.items():
            assert told(server).get((stage, part, "declared"), 0) == nbytes, (stage, part)
    deadline = time.monotonic() + SOON_S
    while left := {key: value for key, value in told(server).items() if key[2] == "used" and value}:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    assert told(server)["encode", "batch", "peak"] > 0
    assert told(server)["acoustic", "batch", "peak"] > 0
    assert told(server)["think", "kv", "peak"] > 0


def test_no_process_takes_more_than_its_model_declares(server: Server) -> None:
    found = as_they_are(server.settings.out)
    (own,) = [one for name, one in found.items() if name in server.log.path.name]
    assert {row.name for row in own} >= {"think", "vocoder", "asr_decode_step", "tritonserver"}
    assert [row.name for row in own if row.ratio > 1] == []
