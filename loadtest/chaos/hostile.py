"""Ten thousand requests that mean no good, to every model of the real server, and good ones beside.

What is drawn: tensors of any type, shape and length, texts that are no text, JSON that is none or
too deep, parameters of any kind, orders that no stage knows, and sound files with broken headers.
"""

import asyncio
import json
import math
import re
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from typing import Any, Final

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from client import audio
from client.calls import CHANNEL_OPTIONS
from client.turns import AsyncTurnClient, TurnOptions
from deploy.launcher import Server
from deploy.stubs import stubs
from loadtest.engine.figures import Found
from loadtest.seed.experiment import ROOT
from python_backends.errors import InvalidInput, StageError, parse

REQUESTS: Final = 10_000
FILES: Final = 1000
AT_ONCE: Final = 12
TIMEOUT_S: Final = 30.0
ORDER: Final = ROOT / "samples" / "order-1.wav"
MODELS: Final = (
    *("turn", "transcribe", "speak", "voice_turn", "encode", "asr_decode", "think", "prosody"),
    *("acoustic", "vocoder", "vad", "listen", "live"),
)
CALLS: Final = ("listen", "live")
"""Models that take sequences of chunks."""

DATATYPES: Final = ("FP32", "FP64", "FP16", "INT64", "INT32", "INT16", "UINT8", "BOOL", "BYTES")
WIDTH: Final = {"FP64": 8, "INT64": 8, "FP32": 4, "INT32": 4, "FP16": 2, "INT16": 2}
SECRETS: Final = re.compile(r"Traceback|\.py\b|/work/|/root/|/home/|/tmp/|site-packages")
"""What no error may tell."""

FAULTS: Final = re.compile("Traceback|not healthy|Failed to process|INTERNAL|UNAVAILABLE")
FINE: Final = ("INVALID_INPUT", "OVERLOADED", "DEADLINE_MISSED", "CANCELLED")
TEXTS: Final = (
    *(b"", b" ", b"\n", b"...", b"?!", b"hello", b"\xff\xfe\x00", b"\xed\xa0\x80", b"\x00" * 9),
    *("👍".encode(), "你好".encode(), "‏مرحبا".encode(), b"**bold** `x` # T", b"$1,234.56"),
)


@dataclass(frozen=True)
class Port:
    """An input of a model, as its config has it."""

    name: str
    datatype: str
    dims: tuple[int, ...]


def hostile(random: Random, advance: Callable[[int], None]) -> Found:
    """See the module; on a server of its own, with real weights."""
    with Server() as server:
        before = {(one.model, one.pid) for one in stubs(server.pid, server.models)}
        ports = {model: _ports(server, model) for model in MODELS}
        told = asyncio.run(_asked(server.grpc_address, ports, random, advance))
        after = {(one.model, one.pid) for one in stubs(server.pid, server.models)}
        alive = server.alive
    kinds = Counter(one.kind for one in told.answers)
    wrong = [one for one in told.answers if one.kind in ("wrong", "hang")]
    leaky = [one for one in told.answers if SECRETS.search(one.text)]
    files = _files(random)
    figures: dict[str, float | None] = {
        "hostile_requests": float(len(told.answers)),
        "hostile_crashes": float(len(before - after) + (not alive)),
        "hostile_hangs": float(kinds["hang"]),
        "hostile_void_batches": float(kinds["void"]),
        "hostile_wrong_codes": float(kinds["wrong"]),
        "hostile_told_secrets": float(len(leaky)),
        "hostile_good_requests": float(told.good),
        "hostile_good_spoilt": float(told.spoilt),
        "hostile_files": float(sum(files.values())),
        "hostile_files_untyped": float(files["untyped"]),
    }
    detail = {
        "kinds": dict(kinds),
        "files": dict(files),
        "wrong": [(one.model, one.text[:300], one.sent[:300]) for one in wrong[:20]],
        "secrets": [(one.model, one.text[:300]) for one in leaky[:10]],
    }
    return Found(figures, detail)


@dataclass(frozen=True)
class Answer:
    """What became of one request: "ok", "refused", "wrong", "hang", or "void": a batch of no rows,
    which the server (2.51) takes and gives to nobody."""

    model: str
    kind: str
    text: str
    sent: str


@dataclass
class Told:
    answers: list[Answer]
    good: int = 0
    spoilt: int = 0


def _ports(server: Server, model: str) -> list[Port]:
    config = server.config(model)
    return [
        Port(
            tensor.name,
            {"TYPE_STRING": "BYTES"}.get(name := _type(tensor), name.removeprefix("TYPE_")),
            tuple(tensor.dims),
        )
        for tensor in config.input
    ]


def _type(tensor: Any) -> str:
    return str(
        tensor.DESCRIPTOR.fields_by_name["data_type"]
        .enum_type.values_by_number[tensor.data_type]
        .name
    )


async def _asked(
    address: str,
    ports: Mapping[str, Sequence[Port]],
    random: Random,
    advance: Callable[[int], None],
) -> Told:
    channel = grpc.aio.insecure_channel(address, options=list(CHANNEL_OPTIONS))
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    requests = iter([drawn(random, ports) for _ in range(REQUESTS)])
    told = Told([])

    async def person() -> None:
        for request in requests:
            told.answers.append(await _answer(stub, request))
            advance(1)

    good = asyncio.create_task(_good(address, told))
    await asyncio.gather(*(person() for _ in range(AT_ONCE)))
    good.cancel()
    with suppress(asyncio.CancelledError):
        await good
    await channel.close()
    return told


async def _good(address: str, told: Told) -> None:
    """Somebody orders again and again, and is to be heard and answered as always."""
    sound = audio.read(ORDER)
    async with AsyncTurnClient(address) as client:
        wanted = (await client.transcribe(sound)).text
        while True:
            await asyncio.sleep(0.5)
            told.good += 1
            try:
                async with client.turn(sound) as stream:
                    heard = [chunk.heard async for chunk in stream]
                told.spoilt += heard[0] != wanted
            except StageError:
                told.spoilt += 1


async def _answer(stub: Any, request: Any) -> Answer:
    sent = str(request)[:300].replace("\n", " ")
    error = ""
    try:
        async for message in stub.ModelStreamInfer(iter([request]), timeout=TIMEOUT_S):
            error = error or message.error_message
    except grpc.RpcError as fault:
        if fault.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            kind = "void" if any(0 in tensor.shape[:1] for tensor in request.inputs) else "hang"
            return Answer(request.model_name, kind, "", sent)
        error = f"{fault.code().name}: {fault.details()}"
    return Answer(request.model_name, _kind(error), error, sent)


def _kind(error: str) -> str:
    """The server's own words have no code on a stream: what it refuses, no stage has seen."""
    if not error:
        return "ok"
    typed = parse(error)
    if typed is not None:
        return "refused" if typed.code in FINE else "wrong"
    return "wrong" if FAULTS.search(error) else "refused"


def drawn(random: Random, ports: Mapping[str, Sequence[Port]]) -> Any:
    """A request that somebody may send."""
    model = random.choice(list(ports))
    request = service_pb2.ModelInferRequest(
        model_name=model, id=random.choice(["", "x", "\x00", "é" * 300])
    )
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    for port in ports[model]:
        if random.random() < 0.85 and port.name != "CONTROL":
            _add(random, request, port)
    if random.random() < 0.05:
        _add(random, request, Port("CONTROL", "BYTES", (1,)))
    if random.random() < 0.03:
        _add(random, request, Port("NOBODY", "FP32", (1,)))
    for _ in range(random.choice((0, 0, 1, 3))):
        _parameter(random, request)
    if model in CALLS and random.random() < 0.8:
        _chunk(random, request)
    return request


def _chunk(random: Random, request: Any) -> None:
    """Make it a chunk of a call: most often a call of one chunk, since one that is not ended stays
    until it is missed."""
    start = random.random() < 0.7
    request.parameters["sequence_id"].string_param = f"call-{random.randrange(20)}"
    request.parameters["sequence_start"].bool_param = start
    request.parameters["sequence_end"].bool_param = random.random() < (0.97 if start else 0.5)


def _add(random: Random, request: Any, port: Port) -> None:
    right = random.random() < 0.7
    datatype = port.datatype if right or random.random() < 0.5 else random.choice(DATATYPES)
    dims = [n if n > 0 else random.choice((0, 1, 2, 7, 16, 160, 1000)) for n in port.dims]
    shape = [1, *dims]
    if not right and random.random() < 0.5:
        shape = [random.choice((-1, 0, 1, 2, 3, 80, 2**31)) for _ in range(random.randint(0, 4))]
    elements = math.prod(shape) if min(shape, default=0) >= 0 else 1
    request.inputs.add(name=port.name, datatype=datatype, shape=shape)
    raw = _raw(random, port, datatype, min(elements, 200_000))
    if random.random() < 0.05:
        raw = raw[: random.randint(0, len(raw))] + random.randbytes(random.choice((0, 1, 3)))
    request.raw_input_contents.append(raw)


def _raw(random: Random, port: Port, datatype: str, elements: int) -> bytes:
    if datatype == "BYTES":
        return b"".join(_text(random, port.name) for _ in range(min(elements, 50)))
    size = elements * WIDTH.get(datatype, 1)
    if datatype == "FP32" and random.random() < 0.8:
        scale = random.choice((0.0, 1e-9, 0.3, 1.0, 32768.0, 1e30, np.nan, np.inf))
        noise = np.frombuffer(random.randbytes(elements), np.int8).astype(np.float32) / 128
        with np.errstate(invalid="ignore", over="ignore"):
            return (noise * np.float32(scale)).astype(np.float32).tobytes()
    if datatype in ("INT32", "INT64") and random.random() < 0.7:
        low, high = random.choice(((0, 4), (-2, 2), (0, 50_000), (-(2**31), 2**31 - 1)))
        values = [random.randint(low, high) for _ in range(min(elements, 5000))]
        return np.resize(np.array(values, datatype.lower()), elements).tobytes()
    return random.randbytes(size)


def _text(random: Random, name: str) -> bytes:
    draw = random.random()
    if name == "CONTROL" and draw < 0.7:
        word = random.choice(
            ('{"cancel": 3}', '{"cancel": ""}', '{"drain": 1}', "[]", "{" * 5000, '{"open": "q"}')
        ).encode()
    elif name == "HISTORY" and draw < 0.7:
        word = random.choice(
            (
                "[]",
                "[" * 20_000,
                json.dumps([{"role": "user"}]),
                json.dumps([{"role": "system", "text": "x"}]),
                json.dumps([{"role": "user", "text": "\ud800"}]),
                json.dumps([{"role": "user", "text": "a" * 300_000}]),
                json.dumps({"role": "user"}),
                "null",
                json.dumps([{"role": "user", "text": "two burgers"}] * 40),
            )
        ).encode()
    elif draw < 0.9:
        word = random.choice(TEXTS)
    else:
        word = random.choice(TEXTS) * random.choice((1, 50, 20_000))
    if random.random() < 0.04:
        return word
    return struct.pack("<I", len(word)) + word


def _parameter(random: Random, request: Any) -> None:
    known = [field.name for field in fields(TurnOptions)]
    name = random.choice([*known, *known, "nobody", "sequence_id", ""])
    slot = request.parameters[name]
    match random.randrange(4):
        case 0:
            slot.bool_param = random.random() < 0.5
        case 1:
            slot.int64_param = random.choice((0, -1, 1, 7, 2**31, 2**63 - 1, -(2**63)))
        case _:
            slot.string_param = random.choice(
                ("", "nan", "inf", "-0.1", "1e400", "0.5", "{}", "[", "x" * 9000, "00-1", "true")
            )


def _files(random: Random) -> "Counter[str]":
    """Sound files with broken headers, to the reader that every client uses."""
    found: Counter[str] = Counter()
    good = ORDER.read_bytes()[:20_000]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.wav"
        for _ in range(FILES):
            path.write_bytes(_broken(random, good))
            found[_read(path)] += 1
    return found


def _broken(random: Random, good: bytes) -> bytes:
    data = bytearray(good)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(44)
        data[at : at + random.choice((1, 2, 4))] = random.choice(
            (b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", random.randbytes(4))
        )[: random.choice((1, 2, 4))]
    return bytes(data[: random.choice((0, 3, 12, 43, 44, 45, 1000, len(data)))])


def _read(path: Path) -> str:
    began = time.monotonic()
    try:
        sound = audio.read(path)
    except InvalidInput as error:
        return "refused" if str(error) else "untyped"
    except Exception:
        return "untyped"
    return "read" if sound.ndim == 1 and time.monotonic() - began < TIMEOUT_S else "untyped"
