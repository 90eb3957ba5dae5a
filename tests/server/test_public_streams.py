"""Public cases of streams, of bad company and of callers that leave, on the real server.

See `tests/CASES.md`.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from client import audio
from client.requests import TurnOptions, speak_request, turn_request
from client.responses import TurnChunk
from client.turns import TurnClient
from deploy import figures
from deploy.launcher import Server
from deploy.processes import SHARED_MEMORY
from python_backends import wire
from python_backends.errors import Cancelled, DeadlineMissed, InvalidInput, StageError
from python_backends.ordering.exchange import join_pieces
from tests.server.asking import Ask
from tests.server.public import CALL_S, GREEDY, PIZZA, SAMPLES, SHORT, SOON_S, Floats, client, stub

__all__ = ["client", "stub"]

pytestmark = pytest.mark.server


def wait_until_idle(server: Server) -> None:
    """Fail unless every stage has ended all its requests soon."""
    deadline = time.monotonic() + SOON_S
    while any(found := _open_requests(server).values()):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def _open_requests(server: Server) -> dict[str, int]:
    return dict(figures.open_requests(figures.read_metrics(server.metrics_address)))


def speech(chunks: list[TurnChunk]) -> Floats:
    return np.concatenate([chunk.speech for chunk in chunks])


@pytest.mark.parametrize("text", ["Café é 你好 👍 done.", "\N{ZERO WIDTH JOINER}Grüezi"])
def test_text_of_several_bytes_a_letter_is_one_string(client: TurnClient, text: str) -> None:
    """Public case D3: as the first thing that a stage is asked, or later."""
    chunks = list(client.speak(text, options=GREEDY))
    assert chunks[-1].ends_turn
    assert speech(chunks).size > 0


def test_a_client_whose_time_is_over_stops_every_stage(server: Server) -> None:
    """Public case E3: the time-out is the client's alone, and the stages hear of it."""
    with TurnClient(server.grpc_address, timeout_s=0.2) as hurried:
        stream = hurried.turn(audio.read(SAMPLES / "order-long.wav"), options=GREEDY)
        with pytest.raises(DeadlineMissed, match=r"0\.2 s"):
            list(stream)
    wait_until_idle(server)


def test_bad_requests_among_good_ones_fail_alone(client: TurnClient) -> None:
    """Public case F4: no text, a temperature that is no number, too long, and two good ones."""
    alone = speech(list(client.speak(SHORT, options=GREEDY)))
    nan = TurnOptions(speech_temperature=float("nan"))
    asked = [(SHORT, GREEDY), ("", GREEDY), (SHORT, nan), ("burger " * 2000, GREEDY)]

    def say(text: str, options: TurnOptions) -> list[TurnChunk] | StageError:
        try:
            return list(client.speak(text, options=options))
        except StageError as error:
            return error

    with ThreadPoolExecutor(5) as pool:
        good, empty, wrong, long, again = pool.map(lambda one: say(*one), [*asked, (SHORT, GREEDY)])
    assert isinstance(wrong, InvalidInput)
    assert isinstance(long, InvalidInput)
    assert isinstance(empty, list)
    assert speech(empty).size == 0
    for one in (good, again):
        assert isinstance(one, list)
        assert np.abs(speech(one) - alone).max() < 1e-4


def _finals(messages: list[Any]) -> list[bool]:
    return [wire.is_final(message.infer_response) for message in messages]


@pytest.mark.parametrize("model", ["speak", "turn", "turn in silence", "voice_turn"])
@pytest.mark.parametrize("marked", [True, False])
def test_a_stream_has_one_end_whether_it_is_marked_or_not(
    stub: Ask, model: str, marked: bool
) -> None:
    """Public case F8: with and without an end marker of its own, through an ensemble, without a
    single chunk of sound."""
    quiet = model == "turn in silence"
    sound = np.zeros(16_000, np.float32) if quiet else audio.read(SAMPLES / "order-3.wav")
    how: dict[str, Any] = {"turn_id": None, "options": GREEDY}
    request = (
        speak_request(SHORT, **how)
        if model == "speak"
        else turn_request(sound, (), session_id=None, **how)
    )
    request.model_name = model.split()[0]
    request.parameters["triton_enable_empty_final_response"].bool_param = marked
    messages = list(stub.ModelStreamInfer(iter([request]), timeout=CALL_S))
    assert not any(message.error_message for message in messages)
    with_tensors = [one for one in messages if one.infer_response.outputs]
    assert with_tensors
    last = wire.to_arrays(with_tensors[-1].infer_response)["PIECE"].reshape(-1)
    assert int(last[2]) & 3 == 3, "the last chunk of the last piece"
    assert sum(_finals(messages)) == (1 if marked else sum(_finals(with_tensors[-1:])))
    assert _finals(messages)[:-1] == [False] * (len(messages) - 1)


def test_twenty_streams_at_once_have_their_chunks_in_order(client: TurnClient) -> None:
    """Public case F10: `TurnReader` refuses a chunk that is out of its place."""
    options = TurnOptions(steps=1, speech_temperature=0.0)
    with ThreadPoolExecutor(20) as pool:
        streams = list(pool.map(lambda _: list(client.speak(SHORT, options=options)), range(20)))
    for chunks in streams:
        assert [chunk.chunk for chunk in chunks] == list(range(len(chunks)))
        assert len(chunks) > 1


def test_streams_follow_each_other_on_one_connection(client: TurnClient) -> None:
    """Public case F15: 26 on one channel, two at a time."""
    options = TurnOptions(steps=1, speech_temperature=0.0)
    with ThreadPoolExecutor(2) as pool:
        sizes = list(
            pool.map(lambda _: speech(list(client.speak(SHORT, options=options))).size, range(26))
        )
    assert len(set(sizes)) == 1
    assert sizes[0] > 0


def shared_memory_bytes(server: Server) -> int:
    regions = SHARED_MEMORY.glob(f"{server.shared_memory_prefix}*")
    return sum(region.stat().st_blocks * 512 for region in regions)


def test_calls_between_stages_leave_no_shared_memory_behind(server: Server, stub: Ask) -> None:
    """Public case F1: every call goes from `encode` to `asr_encoder`; one in ten is refused."""
    good = audio.read(SAMPLES / "order-3.wav")[None]
    bad = good.copy()
    bad[0, 7] = np.nan

    def ask(number: int) -> None:
        sound = bad if number % 10 == 9 else good * np.float32(1 - number / 1000)
        request = wire.to_request("encode", {"AUDIO": sound}, turn=f"f1-{number}", parameters={})
        messages = list(stub.ModelStreamInfer(iter([request]), timeout=CALL_S))
        assert any(one.error_message for one in messages) == (sound is bad)

    for number in range(10):
        ask(number)
    wait_until_idle(server)
    before = shared_memory_bytes(server)
    for number in range(10, 60):
        ask(number)
    wait_until_idle(server)
    assert shared_memory_bytes(server) == before


@pytest.mark.parametrize("chunks_heard", [None, 0, 1, 3])
def test_nothing_of_a_turn_that_was_cut_short_is_heard_in_the_next(
    server: Server, client: TurnClient, chunks_heard: int | None
) -> None:
    """Public case M1: cancelled at once, before the first chunk, after it, and in the middle."""
    question = audio.read(SAMPLES / "order-3.wav")
    alone = list(client.turn(question, options=GREEDY))
    for _ in range(2):
        stream = client.turn(audio.read(SAMPLES / "order-long.wav"), options=GREEDY)
        if chunks_heard == 0:
            time.sleep(0.3)
        for _ in range(chunks_heard or 0):
            next(stream)
        stream.cancel()
        with pytest.raises(Cancelled):
            list(stream)
        after = list(client.turn(question, options=GREEDY))
        assert {chunk.turn_id for chunk in after} == {after[0].turn_id}
        assert after[0].heard == PIZZA
        assert join_pieces(c.text for c in after) == join_pieces(c.text for c in alone)
        assert np.abs(speech(after) - speech(alone)).max() < 1e-4
    wait_until_idle(server)
