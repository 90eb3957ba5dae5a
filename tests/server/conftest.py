"""One server with every model for all tests that need the real thing; and the same as three."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from deploy.cluster import Cluster
from deploy.launcher import Server
from deploy.plan import Plan, find
from deploy.settings import Settings

MODELS = [
    "turn",
    "voice_turn",
    "transcribe",
    "speak",
    "encode",
    "asr_encoder",
    "asr_decode",
    "asr_decode_step",
    "think",
    "prosody",
    "prosody_step",
    "acoustic",
    "acoustic_condition",
    "acoustic_step",
    "vocoder",
    "vad",
    "vad_step",
    "listen",
    "live",
]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Every model of the project, on free ports, for the whole test session."""
    with Server(Settings(models=MODELS), progress=print) as running:
        yield running


@dataclass(frozen=True)
class Served:
    """Where turns are served: the address for callers, and /metrics of every server behind it."""

    grpc_address: str
    metrics_addresses: tuple[str, ...]


@pytest.fixture(scope="session", params=["one", pytest.param("three", marks=pytest.mark.full)])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """Everything in one server, or listen, think and speak in a server each."""
    if request.param == "one":
        server = request.getfixturevalue("server")
        yield Served(server.grpc_address, (server.metrics_address,))
        return
    with Cluster(Plan.read(find("three-servers")), progress=print) as cluster:
        addresses = [one.metrics_address for one in cluster.servers.values()]
        yield Served(cluster.grpc_address, tuple(addresses))
