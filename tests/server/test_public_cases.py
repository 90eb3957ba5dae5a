"""Public cases of tensors, of the protocol and of shared memory, on the real server.

See `tests/CASES.md`. Requests are made by hand where a client would not make them.
"""

import json
import time
from contextlib import suppress
from http.client import HTTPConnection
from typing import Any
from uuid import uuid4

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import serialize_byte_tensor

from client import audio
from client.requests import TurnOptions, speak_request, transcribe_request
from client.turns import TurnClient
from deploy.launcher import Server
from deploy.stubs import stubs
from python_backends import wire
from python_backends.errors import InvalidInput
from python_backends.regions import Region
from tests.server.asking import Ask
from tests.server.public import CALL_S, PIZZA, SAMPLES, Floats, client, stub

__all__ = ["client", "stub"]

pytestmark = pytest.mark.server

DEFAULT_MESSAGE_BYTES = 4 * 2**20
"""What a gRPC channel takes in one message unless it is told otherwise."""


def post(
    server: Server, model: str, name: str, datatype: str, shape: list[int], raw: bytes
) -> tuple[int, str]:
    """Status and body of one input, sent over HTTP as raw bytes."""
    tensor = {
        "name": name,
        "datatype": datatype,
        "shape": shape,
        "parameters": {"binary_data_size": len(raw)},
    }
    head = json.dumps({"inputs": [tensor]}).encode()
    line = HTTPConnection(server.http_address, timeout=CALL_S)
    try:
        line.request(
            "POST",
            f"/v2/models/{model}/infer",
            head + raw,
            {"Inference-Header-Content-Length": str(len(head))},
        )
        answer = line.getresponse()
        return answer.status, answer.read().decode()
    finally:
        line.close()


def processes(server: Server) -> set[int]:
    """Of all stages."""
    return {one.pid for one in stubs(server.pid, server.models)}


@pytest.mark.parametrize(
    "raw", [b"hello", b"he", b"\xff\xff\xff\x7fhello", b"\x05\0\0\0hello\x05\0\0\0hello"]
)
def test_text_without_its_length_is_refused_and_kills_nobody(server: Server, raw: bytes) -> None:
    """Public case D1: the letters are taken for a length."""
    before = processes(server)
    status, said = post(server, "prosody", "TEXT", "BYTES", [1, 1], raw)
    assert status == 400
    assert "TEXT" in said
    good = serialize_byte_tensor(np.array([b"hello"], np.object_)).item()
    assert post(server, "prosody", "TEXT", "BYTES", [1, 1], good)[0] == 200
    assert processes(server) == before


@pytest.mark.parametrize(
    ("model", "name", "datatype", "shape"),
    [
        ("transcribe", "AUDIO", "FP32", [1, 0]),
        ("encode", "AUDIO", "FP32", [1, 0]),
        ("think", "HEARD", "BYTES", [1, 0]),
        ("prosody", "TEXT", "BYTES", [1, 0]),
        ("asr_encoder", "MEL", "FP32", [1, 80, 0]),
        ("vad", "AUDIO", "FP32", [1, 0]),
        ("acoustic", "PROSODY", "INT32", [1, 0, 3]),
    ],
)
def test_a_tensor_of_no_elements_is_refused_and_kills_nobody(
    server: Server, stub: Ask, model: str, name: str, datatype: str, shape: list[int]
) -> None:
    """Public cases D4 and L8: it arrives, and is refused rather than taken for left out."""
    before = processes(server)
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name=name, datatype=datatype, shape=shape)
    request.raw_input_contents.append(b"")
    answers = stub.ModelStreamInfer(iter([request]), timeout=CALL_S)
    said = [message.error_message for message in answers]
    assert any(said), "answered as if there were something"
    assert processes(server) == before


@pytest.mark.parametrize("datatype", ["FP16", "FP64", "INT16", "UINT8", "INT64"])
def test_another_datatype_is_refused_with_the_one_that_came_and_the_one_expected(
    server: Server, datatype: str
) -> None:
    """Public case D5."""
    width = {"FP16": 2, "FP64": 8, "INT16": 2, "UINT8": 1, "INT64": 8}[datatype]
    status, said = post(server, "transcribe", "AUDIO", datatype, [1, 160], bytes(160 * width))
    assert status == 400
    assert "'AUDIO'" in said
    assert said.index(f"is '{datatype}'") < said.index("expects 'FP32'")


def test_an_hour_of_sound_is_refused_over_http_and_grpc(server: Server, client: TurnClient) -> None:
    """Public case D6: the limit, one second more, and half a gigabyte less than an hour."""
    second_more = np.zeros(61 * 16_000, np.float32)
    status, said = post(
        server, "transcribe", "AUDIO", "FP32", [1, second_more.size], second_more.tobytes()
    )
    assert (status, "61.00 s" in said, "60 s" in said) == (400, True, True)
    with pytest.raises(InvalidInput, match=r"61\.00 s.* 60 s"):
        client.transcribe(second_more)
    with pytest.raises(InvalidInput, match=r"230400000 bytes; at most \d+"):
        client.transcribe(np.zeros(3600 * 16_000, np.float32))


def test_a_channel_of_default_limits_hears_the_longest_speech(server: Server) -> None:
    """Public case D8: no message is near the limit, even where nothing is streamed."""
    text = "One hundred and twenty seven cheeseburgers, please, with a large Coke each. " * 2
    whole = TurnOptions(stream=False, speech_temperature=0.0)
    request = speak_request(text, turn_id=None, options=whole)
    with grpc.insecure_channel(server.grpc_address) as channel:
        plain = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        messages = list(plain.ModelStreamInfer(iter([request]), timeout=CALL_S))
    assert not any(message.error_message for message in messages)
    largest = max(message.ByteSize() for message in messages)
    assert 2**18 < largest < DEFAULT_MESSAGE_BYTES / 2


@pytest.mark.parametrize("shape", [[], [160], [1, 1, 160]])
def test_a_tensor_of_another_rank_is_refused(server: Server, shape: list[int]) -> None:
    """Public case D10: one shape is accepted; what is a scalar travels as a parameter."""
    elements = int(np.prod(shape)) if shape else 1
    status, said = post(server, "transcribe", "AUDIO", "FP32", shape, bytes(4 * elements))
    assert status == 400
    assert "AUDIO" in said or "batch-size must be <= 1" in said


def register(server: Server, stub: Ask, region: Region) -> None:
    stub.SystemSharedMemoryRegister(
        service_pb2.SystemSharedMemoryRegisterRequest(
            name=region.name, key=region.key, offset=0, byte_size=region.size
        ),
        metadata=server.access.metadata,
    )


def unregister(server: Server, stub: Ask, name: str) -> None:
    stub.SystemSharedMemoryUnregister(
        service_pb2.SystemSharedMemoryUnregisterRequest(name=name), metadata=server.access.metadata
    )


def heard_from(stub: Ask, region: Region, sound: Floats) -> Any:
    """A call of `transcribe` whose sound lies in shared memory."""
    block = region.put({"AUDIO": sound[None]})
    assert block is not None
    request = transcribe_request(sound, turn_id=None)
    del request.raw_input_contents[:]
    tensor = request.inputs[0]
    place = block.places["AUDIO"]
    tensor.parameters["shared_memory_region"].string_param = place.region
    tensor.parameters["shared_memory_offset"].int64_param = place.offset
    tensor.parameters["shared_memory_byte_size"].int64_param = place.size
    return stub.ModelInfer.future(request, timeout=CALL_S)


def outcome(under_way: Any) -> Any:
    """What was heard, or the status of the refusal."""
    try:
        return wire.to_arrays(under_way.result())["HEARD"].item().decode().strip()
    except grpc.RpcError as refused:
        return refused.code()


def a_region(server: Server) -> Region:
    return Region(f"{server.shared_memory_prefix}case-{uuid4().hex[:8]}", 2**20)


def test_a_region_that_is_withdrawn_while_it_is_used_harms_nobody(
    server: Server, stub: Ask, client: TurnClient
) -> None:
    """Public case L10: heard or refused, and the server lives; the file goes before it is told,
    as when its owner is killed, and comes again."""
    sound = audio.read(SAMPLES / "order-3.wav")
    before = processes(server)
    for after_s in (0.0, 0.01, 0.05):
        region = a_region(server)
        register(server, stub, region)
        under_way = heard_from(stub, region, sound)
        time.sleep(after_s)
        region.close()
        with suppress(grpc.RpcError):
            unregister(server, stub, region.name)
        assert outcome(under_way) in (PIZZA, grpc.StatusCode.INVALID_ARGUMENT)
    assert client.transcribe(sound).text == PIZZA
    assert processes(server) == before


def test_what_one_caller_withdraws_is_its_own(server: Server, stub: Ask) -> None:
    """Public case L11: a region is withdrawn by its name, and no two have one name."""
    sound = audio.read(SAMPLES / "order-3.wav")
    one, other = a_region(server), a_region(server)
    try:
        for region in (one, other):
            register(server, stub, region)
        unregister(server, stub, one.name)
        assert outcome(heard_from(stub, other, sound)) == PIZZA
        with pytest.raises(grpc.RpcError, match=one.name):
            heard_from(stub, one, sound).result()
    finally:
        unregister(server, stub, other.name)
        one.close()
        other.close()
