"""Voice activity as a sequence: its state is the server's, kept by correlation id."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from client import audio
from deploy.launcher import Server

pytestmark = pytest.mark.server

WINDOW = 512
SAMPLE = Path(__file__).parents[2] / "samples" / "order-1.wav"


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    one = triton.InferenceServerClient(server.grpc_address)
    yield one
    one.close()


def windows(sound: audio.Floats) -> list[audio.Floats]:
    count = sound.size // WINDOW
    return list(sound[: count * WINDOW].reshape(count, 1, WINDOW))


def ask(
    client: triton.InferenceServerClient,
    window: audio.Floats,
    sequence: int,
    *,
    start: bool = False,
    end: bool = False,
) -> float:
    tensor = triton.InferInput("AUDIO", window.shape, "FP32")
    tensor.set_data_from_numpy(window)
    answer = client.infer(
        "vad", [tensor], sequence_id=sequence, sequence_start=start, sequence_end=end
    )
    return float(answer.as_numpy("SPEECH_PROBABILITY").item())


def probabilities(
    client: triton.InferenceServerClient, sound: audio.Floats, sequence: int
) -> list[float]:
    parts = windows(sound)
    return [
        ask(client, part, sequence, start=at == 0, end=at == len(parts) - 1)
        for at, part in enumerate(parts)
    ]


def test_speech_is_told_from_silence(client: triton.InferenceServerClient) -> None:
    speech = probabilities(client, audio.read(SAMPLE), 11)
    assert np.mean(np.array(speech) > 0.5) > 0.6
    silence = probabilities(client, np.zeros(16_000, np.float32), 12)
    assert max(silence) < 0.2


def test_a_sequence_id_used_again_starts_afresh(client: triton.InferenceServerClient) -> None:
    sound = audio.read(SAMPLE)[:16_000]
    assert probabilities(client, sound, 13) == probabilities(client, sound, 13)


def test_interleaved_sequences_do_not_hear_each_other(
    client: triton.InferenceServerClient,
) -> None:
    sound, silence = audio.read(SAMPLE)[:16_000], np.zeros(16_000, np.float32)
    alone = [probabilities(client, one, 14) for one in (sound, silence)]
    together: list[list[float]] = [[], []]
    for at, pair in enumerate(zip(windows(sound), windows(silence), strict=True)):
        for which, window in enumerate(pair):
            together[which].append(ask(client, window, 15 + which, start=at == 0))
    assert np.allclose(together, alone, atol=1e-5)


def test_a_window_without_a_start_is_refused(client: triton.InferenceServerClient) -> None:
    """Public case E5."""
    with pytest.raises(InferenceServerException, match="START"):
        ask(client, np.zeros((1, WINDOW), np.float32), 99)
