"""One server with every model for all tests that need the real thing."""

from collections.abc import Iterator

import pytest

from deploy.launcher import Server
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
    "think_step",
    "prosody",
    "prosody_step",
    "acoustic",
    "acoustic_condition",
    "acoustic_step",
    "vocoder",
    "vad",
]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Every model of the project, on free ports, for the whole test session."""
    with Server(Settings(models=MODELS), progress=print) as running:
        yield running
