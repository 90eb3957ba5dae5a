"""Speaking with `mode: interleave`, on a server of its own beside the one with the lock."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from client import audio
from client.turns import TurnClient, TurnOptions
from deploy.launcher import Server
from deploy.settings import Settings

pytestmark = pytest.mark.server

SPEAKING = ["speak", "prosody", "acoustic", "acoustic_condition", "acoustic_step", "vocoder"]
TEXTS = [
    "Got it, two cheeseburgers and a large Coke.",
    "Anything else?",
    "Sorry, we don't have pizza. Would you like something else?",
]
WISHES = [
    (line, TurnOptions(speech_temperature=0.0, seed=seed, steps=steps, solver=solver))
    for line in TEXTS
    for seed, steps, solver in [(7, 2, "euler"), (8, 8, "euler"), (9, 3, "midpoint")]
]


@pytest.fixture(scope="module")
def interleaved() -> Iterator[TurnClient]:
    overrides = {"acoustic": {"mode": "interleave"}}
    with (
        Server(Settings(models=SPEAKING, overrides=overrides)) as running,
        TurnClient(running.grpc_address) as client,
    ):
        yield client


def say(client: TurnClient, wish: tuple[str, TurnOptions]) -> tuple[audio.Floats, int]:
    """What is spoken, and the most members that shared a step with it."""
    line, options = wish
    chunks = list(client.speak(line, options=options))
    spans = [one for one in chunks[0].events if (one.stage, one.what) == ("acoustic", "compute")]
    sound = np.concatenate([chunk.speech for chunk in chunks])
    return sound, max(int(span.more["members"]) for span in spans)


def test_pieces_that_share_steps_sound_as_each_does_alone(interleaved: TurnClient) -> None:
    alone = [say(interleaved, wish) for wish in WISHES]
    with ThreadPoolExecutor(len(WISHES)) as pool:
        together = list(pool.map(partial(say, interleaved), WISHES))
    assert all(sound.size > 2_400 for sound, _ in alone)
    assert {members for _, members in alone} == {1}
    assert max(members for _, members in together) > 1, "nobody shared a step"
    for (one, _), (other, _) in zip(alone, together, strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() < 1e-4
