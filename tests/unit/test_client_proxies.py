"""The clients behind a proxy that answers in the server's place: a status, and no gRPC at all."""

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from client.turns import AsyncTurnClient, TurnClient
from python_backends.errors import StageFailed
from tests.unit.fake_triton import AUDIO, WAIT_S

HEADERS, SETTINGS, ACKNOWLEDGED, END_HEADERS, END_STREAM, DATA = 1, 4, 1, 4, 1, 0
STATUS = {200: b"\x88", 404: b"\x8d", 503: b"\x08\x03503"}
"""Of HTTP/2, compressed: entries 8 and 13 of the static table of RFC 7541, or its name alone."""

HTML = b"\x0f\x10\x09text/html"
"""content-type (entry 31), not to be indexed: RFC 7541, 6.2.2."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """RFC 9113, 4.1."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _answer(line: socket.socket, status: int, body: bytes) -> None:
    """Every call on a connection gets this status and body."""
    with line, suppress(OSError), line.makefile("rb") as read:
        read.read(len(PREFACE))
        line.sendall(frame(SETTINGS, 0, 0))
        while head := read.read(9):
            size = int.from_bytes(head[:3], "big")
            kind, flags, stream = struct.unpack(">BBI", head[3:])
            read.read(size)
            if kind == SETTINGS and not flags & ACKNOWLEDGED:
                line.sendall(frame(SETTINGS, ACKNOWLEDGED, 0))
            if kind == HEADERS:
                last = 0 if body else END_STREAM
                line.sendall(frame(HEADERS, END_HEADERS | last, stream, STATUS[status] + HTML))
                if body:
                    line.sendall(frame(DATA, END_STREAM, stream, body))


@contextmanager
def proxy(status: int, body: bytes) -> Iterator[str]:
    """Its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    line, _ = listening.accept()
                    threading.Thread(target=_answer, args=(line, status, body)).start()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


ANSWERS = [(503, b""), (404, b""), (200, b"<html>Welcome</html>"), (404, b"<html>no</html>")]


@pytest.mark.parametrize(("status", "body"), ANSWERS)
def test_an_answer_of_a_proxy_is_an_error_with_a_reason(status: int, body: bytes) -> None:
    """Public case D11."""
    with proxy(status, body) as address, TurnClient(address, timeout_s=WAIT_S) as client:
        for call in (lambda: list(client.turn(AUDIO)), lambda: client.transcribe(AUDIO)):
            with pytest.raises(StageFailed) as failed:
                call()
            assert failed.value.message
            assert failed.value.turn


@pytest.mark.parametrize(("status", "body"), ANSWERS)
def test_the_async_client_says_so_too(status: int, body: bytes) -> None:
    """Public case D11."""

    async def turn(address: str) -> None:
        async with AsyncTurnClient(address, timeout_s=WAIT_S) as client:
            async for _ in client.turn(AUDIO):
                pass

    with proxy(status, body) as address, pytest.raises(StageFailed, match=r"[a-z]"):
        asyncio.run(turn(address))
