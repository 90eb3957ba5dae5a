"""Many recordings at once on the real server: who shares a pass, and that nobody hears another."""

import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import numpy.typing as npt
import pytest

from client import audio
from client.requests import transcribe_request
from client.responses import read_transcript
from client.turns import TurnClient
from client.wer import words
from python_backends import wire
from tests import clips
from tests.server.asking import asking
from tests.server.conftest import Served
from tests.server.sounds import noise

pytestmark = pytest.mark.server

Floats = npt.NDArray[np.float32]
SAMPLES = Path(__file__).parents[2] / "samples"
RATE = 16_000


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[TurnClient]:
    with TurnClient(served.grpc_address) as one:
        yield one


def order(number: int) -> Floats:
    return audio.read(SAMPLES / f"order-{number}.wav")


def counted(served: Served, metric: str) -> float:
    """Triton's own counter of the model `asr_encoder`, on whichever server has it."""
    found = 0.0
    for address in served.metrics_addresses:
        with urllib.request.urlopen(f"http://{address}/metrics") as page:
            for row in page.read().decode().splitlines():
                if row.startswith(f'{metric}{{model="asr_encoder"'):
                    found += float(row.rsplit(" ", 1)[1])
    return found


def test_recordings_of_every_bucket_at_once_are_heard_as_each_alone(client: TurnClient) -> None:
    """Public cases C1 and C4: four in the short bucket, one of 1.1 s; two in the long one, one of
    exactly 30 s; two of several windows."""
    jfk, librivox = audio.read(clips.jfk()[0]), [audio.read(path) for path, _ in clips.librivox()]
    card = audio.read(clips.POCKETSPHINX.member("test/data/cards/001.wav"))
    joined = np.concatenate([jfk, *librivox])
    sounds = [card, order(1), order(3), librivox[0], joined[: 18 * RATE], joined[: 30 * RATE]]
    sounds += [joined, np.concatenate([joined[: 31 * RATE], order(2)])]
    assert len(card) < 1.2 * RATE
    assert len(joined) > 30 * RATE
    alone = [client.transcribe(sound).text for sound in sounds]
    with ThreadPoolExecutor(len(sounds)) as pool:
        together = [answer.text for answer in pool.map(client.transcribe, sounds)]
    assert together == alone
    assert all(alone[1:])
    assert len(set(alone)) == len(alone)


def test_sixteen_lengths_of_one_bucket_share_passes(served: Served, client: TurnClient) -> None:
    """Public case C2: Triton batches equal shapes alone, and these are made equal before it."""
    sounds = [np.pad(order(3), (0, 163 * number)) for number in range(16)]
    before = [counted(served, f"nv_inference_{what}") for what in ("count", "exec_count")]
    with ThreadPoolExecutor(16) as pool:
        texts = {answer.text for answer in pool.map(client.transcribe, sounds)}
    after = [counted(served, f"nv_inference_{what}") for what in ("count", "exec_count")]
    assert texts == {"Do you have pizza?"}
    assert after[0] - before[0] == 16
    assert 4 <= after[1] - before[1] <= 8


def test_three_windows_of_one_recording_are_all_heard(client: TurnClient) -> None:
    """Public case C7: three in, three out, in their order."""
    sound = 0.2 * noise(60)
    for pause_s in (25.5, 51):
        sound[round(pause_s * RATE) :][: RATE // 5] = 0
    for start_s, number in ((3, 3), (40, 4), (53, 3)):
        sound[start_s * RATE :][: len(order(number))] += order(number)
    answer = client.transcribe(sound)
    passes = [e for e in answer.events if (e.stage, e.what) == ("encode", "compute")]
    assert sorted(event.more["window"] for event in passes) == [0, 1, 2]
    expected = [
        word for number in (3, 4, 3) for word in words(client.transcribe(order(number)).text)
    ]
    assert words(answer.text) == expected


def test_recordings_without_an_id_or_with_one_for_two_are_kept_apart(
    served: Served, client: TurnClient
) -> None:
    """Public case C15, asked of `transcribe` directly, where no front door gives ids."""
    sounds = [order(number) for number in (1, 2, 3, 4, 5, 1, 2, 3, 1, 3)]
    ids = [""] * 8 + ["1", "1"]

    def heard(sound: Floats, turn_id: str) -> str:
        request = transcribe_request(sound, turn_id="replaced")
        request.id = turn_id
        with asking(served.grpc_address) as stub:
            return read_transcript(stub.ModelInfer(request)).text

    alone = [client.transcribe(sound).text for sound in sounds]
    with ThreadPoolExecutor(len(sounds)) as pool:
        assert list(pool.map(heard, sounds, ids)) == alone
    assert len(set(alone)) == 5


@pytest.mark.parametrize("model", ["transcribe", "encode"])
def test_two_rows_of_sound_in_one_request_are_refused(served: Served, model: str) -> None:
    """Public case C9: a request is one recording."""
    inputs = {"AUDIO": np.stack([order(3)] * 2)}
    request = wire.to_request(model, inputs, turn="t", parameters={}, streamed=False)
    with asking(served.grpc_address) as stub, pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(request)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "batch" in refused.value.details()
    assert model in refused.value.details()


def test_rows_that_do_not_fit_each_other_are_refused_by_name(served: Served) -> None:
    """Public case C9: two rows of sound, one of history."""
    inputs = {
        "AUDIO": np.stack([order(3)] * 2),
        "HISTORY": np.array([[b"[]"]], np.object_),
    }
    request = wire.to_request("turn", inputs, turn="t", parameters={})
    with asking(served.grpc_address) as stub:
        (message, *_) = stub.ModelStreamInfer(iter([request]))
    assert "batch" in message.error_message
    assert "turn" in message.error_message
