"""Every stage's figures on /metrics of the real server."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from client import audio
from client.turns import TurnClient
from deploy.figures import read_metrics, rows
from deploy.launcher import Server

pytestmark = pytest.mark.server

ORDER = Path(__file__).parents[2] / "samples" / "order-1.wav"
SOON_S = 5.0

HISTOGRAMS = {
    "queue": ("encode", "asr_decode", "think", "prosody", "acoustic"),
    "step": ("encode", "asr_decode", "think", "prosody", "acoustic"),
    "window": ("encode",),
    "lock": ("acoustic",),
    "first_chunk": ("turn", "encode", "asr_decode", "think", "prosody", "acoustic"),
}


def figures(server: Server) -> dict[tuple[str, str], float]:
    """Everything of ours by name and stage, other labels added up."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows(read_metrics(server.metrics_address)):
        found[row.name, row.stage] += row.value
    return found


def test_every_stage_tells_its_waits_its_steps_and_how_its_requests_ended(server: Server) -> None:
    with TurnClient(server.grpc_address) as client:
        list(client.turn(audio.read(ORDER)))
    wanted = [
        (f"tristage_{name}_seconds_count", stage)
        for name, stages in HISTOGRAMS.items()
        for stage in stages
    ]
    deadline = time.monotonic() + SOON_S
    while not all(figures(server).get(row, 0) > 0 for row in wanted):
        told = figures(server)
        assert time.monotonic() < deadline, [row for row in wanted if not told.get(row)]
        time.sleep(0.05)
    told = figures(server)
    for stage in HISTOGRAMS["first_chunk"]:
        assert told["tristage_requests_total", stage] >= 1
    released = [v for (name, _), v in told.items() if name == "tristage_releases_total"]
    assert sum(released) >= 1
    for stage in ("asr_decode", "prosody"):
        assert told["tristage_bytes", stage] > 0


def test_equal_recordings_at_once_are_encoded_less_often_than_they_came(server: Server) -> None:
    def shared() -> float:
        return figures(server).get(("tristage_shared_total", "encode"), 0)

    sound, before = audio.read(ORDER), shared()
    with TurnClient(server.grpc_address) as client, ThreadPoolExecutor(6) as pool:
        heard = {answer.text for answer in pool.map(client.transcribe, [sound] * 6)}
    assert len(heard) == 1
    assert "cheeseburgers" in heard.pop()
    deadline = time.monotonic() + SOON_S
    while shared() == before:
        assert time.monotonic() < deadline, "six equal recordings were encoded one by one"
        time.sleep(0.05)
