"""Load that has every stage take the most it may: the largest requests, as many as are let in.

What a caller gets of it does not matter, and some of it is refused; what counts is what the
processes take meanwhile.
"""

import json
import wave
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2_grpc

from deploy.launcher import Server
from deploy.rehearsal import INT16_FULL_SCALE, ORDER
from python_backends import speech, wire
from python_backends.errors import StageError, from_text

Arrays = dict[str, NDArray[Any]]
TIMEOUT_S: Final = 60.0
AT_ONCE: Final = 8
SAMPLE_RATE_HZ: Final = 16_000
MINUTE: Final = 60 * SAMPLE_RATE_HZ
SESSIONS: Final = 8
"""Conversations; as many as the LLM keeps the KV of."""

CROWD: Final = 7
"""Turns of a minute at once: what the front door may hold of them."""

MINUTES: Final = 9
"""Sounds of a minute at once that the encoder's window may hold."""

CROWD_MS: Final = 8000
"""After which they are given up: by then all of them have been heard."""

FRAMES: Final = 1600
"""Of the longest piece of sound."""

PHONEMES: Final = 100
ROWS: Final = 16
"""Of prosody."""

STREAMS: Final = 64
CALL_S: Final = 10
SENTENCE: Final = "The big brown dog ran over the hill and found three small cats by the river, "
EXCHANGE: Final = (
    {"role": "user", "text": "I would like two cheeseburgers and a large lemonade, please."},
    {"role": "assistant", "text": "Got it, two cheeseburgers and a large lemonade. Anything else?"},
)


def largest(models: Collection[str]) -> Iterator[list[Any]]:
    """ModelInferRequests for those of `models` that take them, in groups that are sent together."""
    makers: dict[str, Callable[[], Iterable[Sequence[Any]]]] = {
        "think": _talks,
        "turn": _crowd,
        "transcribe": _orders,
        "encode": partial(_minutes, models),
        "speak": _sentences,
        "prosody": _texts,
        "acoustic": _pieces,
        "vocoder": _sounds,
        "vad": _streams,
        "listen": partial(_calls, "listen"),
        "live": partial(_calls, "live"),
    }
    for model, make in makers.items():
        if model in models:
            yield from map(list, make())


def send(server: Server, requests: Sequence[Any]) -> list[StageError | None]:
    """All of them at once; what each one failed with."""
    channel = server.access.dial(server.grpc_address, wire.CHANNEL_OPTIONS)
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    try:
        with ThreadPoolExecutor(len(requests)) as threads:
            return list(threads.map(lambda request: _ask(stub, request), requests))
    finally:
        channel.close()


def _ask(stub: Any, request: Any) -> StageError | None:
    error = None
    try:
        for message in stub.ModelStreamInfer(iter([request]), timeout=TIMEOUT_S):
            if message.error_message:
                error = error or from_text(message.error_message)
    except grpc.RpcError as fault:
        return from_text(fault.details() or str(fault.code()))
    return error


def _talks() -> Iterator[list[Any]]:
    """Conversations at about the length from which the first lines are dropped. The second time
    each goes on where it was, so that there is little to compute and all are at work together."""
    for exchanges in (4, 5):
        arrays = {
            "HEARD": _text(EXCHANGE[0]["text"]),
            "HISTORY": _text(json.dumps([*EXCHANGE] * exchanges)),
        }
        yield [
            _request("think", one, {**arrays, "SESSION_ID": _text(f"load-{one}")})
            for one in range(SESSIONS)
        ]


def _crowd() -> Iterator[list[Any]]:
    """Turns of a minute at once, all of one sound: it is encoded once for all of them."""
    yield [
        _request("turn", number, {"AUDIO": minute()}, deadline_ms=CROWD_MS)
        for number in range(CROWD)
    ]


def _orders() -> Iterator[list[Any]]:
    """Short sounds that differ: a row of the decoder for each of them, with a short context."""
    sounds = (np.roll(_recorded(), SAMPLE_RATE_HZ * one // 4) for one in range(AT_ONCE))
    yield [_request("transcribe", one, {"AUDIO": sound[None]}) for one, sound in enumerate(sounds)]


def _minutes(models: Collection[str]) -> Iterator[list[Any]]:
    """As many sounds of a minute as are let in, all of them one, behind the largest pass that the
    window makes: so they are all there together."""
    minutes = [_request("encode", number, {"AUDIO": minute()}) for number in range(MINUTES)]
    largest = _request("asr_encoder", 0, {"MEL": np.zeros((4, 80, 3000), np.float32)})
    yield [largest, *minutes] if "asr_encoder" in models else minutes


def _sentences() -> Iterator[list[Any]]:
    yield [_request("speak", one, {"TEXT": _text(3 * SENTENCE)}, stream=False) for one in range(4)]


def _texts() -> Iterator[list[Any]]:
    """The longest pieces of text, a row for each of them."""
    yield [_request("prosody", number, {"TEXT": _text(5 * SENTENCE)}) for number in range(ROWS)]


def _pieces() -> Iterator[list[Any]]:
    """The longest pieces, twice as many as one batch takes."""
    prosody = np.zeros((1, PHONEMES, 3), np.int32)
    prosody[0] = [[20, FRAMES // PHONEMES, 10]] * PHONEMES
    yield [
        _request("acoustic", one, {"PROSODY": prosody}, stream=False, seed=one) for one in range(8)
    ]


def _sounds() -> Iterator[list[Any]]:
    """The longest chunks, as many as one batch takes."""
    shape = (AT_ONCE, FRAMES)
    frames: Arrays = {
        "LATENT": np.ones((*shape, speech.LATENT), np.float32),
        "F0": np.full(shape, 120, np.float32),
        "VOICED": np.ones(shape, np.float32),
        "PHASE": np.zeros(shape, np.float32),
        "NOISE": np.ones((*shape, speech.NOISE), np.float32),
        "VOICE": np.zeros((AT_ONCE, 1), np.int64),
    }
    yield [_request("vocoder", 0, frames)]


def _streams() -> Iterator[list[Any]]:
    """As many streams as are let in, each for one window."""
    found = []
    for number in range(STREAMS):
        request = _request("vad", number, {"AUDIO": np.zeros((1, 512), np.float32)})
        request.parameters["sequence_id"].string_param = f"load-{number}"
        request.parameters["sequence_start"].bool_param = True
        request.parameters["sequence_end"].bool_param = True
        found.append(request)
    yield found


def _calls(model: str) -> Iterator[list[Any]]:
    """As many calls as are let in, of as much sound as may wait, all of one order; each ends in
    the middle of it."""
    pcm = np.resize((32_767 * _recorded()).astype("<i2"), CALL_S * SAMPLE_RATE_HZ)
    found = []
    for number in range(STREAMS):
        request = _request(model, number, {"PCM": pcm.view(np.uint8)[None]})
        request.parameters["sequence_id"].string_param = f"load-{number}"
        request.parameters["sequence_start"].bool_param = True
        request.parameters["sequence_end"].bool_param = True
        found.append(request)
    yield found


def minute() -> NDArray[np.float32]:
    """AUDIO [1, 960000] of somebody who orders again and again."""
    return np.resize(_recorded(), MINUTE)[None]


def _recorded() -> NDArray[np.float32]:
    with wave.open(str(ORDER)) as recording:
        samples = np.frombuffer(recording.readframes(recording.getnframes()), "<i2")
    return samples.astype(np.float32) / INT16_FULL_SCALE


def _request(model: str, number: int, arrays: Arrays, **parameters: Any) -> Any:
    return wire.to_request(model, arrays, turn=f"load-{model}-{number}", parameters=parameters)


def _text(text: str) -> NDArray[np.object_]:
    return np.array([[text.encode()]], np.object_)
