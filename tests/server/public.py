"""What the tests of public cases have in common: somebody who orders, and short things to say."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from client import audio
from client.turns import TurnClient, TurnOptions
from deploy.launcher import Server
from tests.server.asking import Ask, asking

SAMPLES = Path(__file__).parents[2] / "samples"
GREEDY = TurnOptions(temperature=0.0, speech_temperature=0.0, seed=7)
SHORT = "Anything else?"
PIZZA = "Do you have pizza?"
SOON_S = 5.0
CALL_S = 30.0

Floats = audio.Floats


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[TurnClient]:
    with TurnClient(server.grpc_address) as one:
        yield one


@pytest.fixture(scope="module")
def stub(server: Server) -> Iterator[Ask]:
    with asking(server.grpc_address) as one:
        yield one
