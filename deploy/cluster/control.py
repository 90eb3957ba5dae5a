"""Orders to a running supervisor: one line of JSON over a Unix socket, answered line by line."""

import json
import os
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket

from deploy.errors import DeployError

Scale = Callable[[str, int, Callable[[str], None]], None]
"""Scale a stage to a count, and tell what is being done."""


class Control:
    """Takes {"scale": stage, "to": count}; answers {"progress": text} some times, then {"done":
    true} or {"error": text}. For this user alone."""

    def __init__(self, path: Path, scale: Scale) -> None:
        self.path = path
        path.unlink(missing_ok=True)

        class Order(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                def answer(**told: object) -> None:
                    with suppress(OSError):
                        self.wfile.write(json.dumps(told).encode() + b"\n")

                _obey(self.rfile.readline(), scale, answer)

        self._server = _Server(str(path), Order)
        os.chmod(path, 0o600)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="control", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Take no more orders."""
        self._server.shutdown()
        self._server.server_close()
        self.path.unlink(missing_ok=True)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False


def _obey(line: bytes, scale: Scale, answer: Callable[..., None]) -> None:
    try:
        match json.loads(line):
            case {"scale": str(stage), "to": int(count)}:
                scale(stage, count, lambda text: answer(progress=text))
                answer(done=True)
            case _:
                answer(error='orders are {"scale": stage, "to": count}')
    except (DeployError, OSError, ValueError) as failure:
        answer(error=str(failure))


def order(path: Path, stage: str, count: int) -> Iterator[str]:
    """Have a supervisor scale a stage; what it does meanwhile. DeployError when it does not."""
    with socket(AF_UNIX, SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
        except OSError as fault:
            raise DeployError(f"the supervisor does not listen at {path}: {fault}") from fault
        connection.sendall(json.dumps({"scale": stage, "to": count}).encode() + b"\n")
        for line in connection.makefile("rb"):
            match json.loads(line):
                case {"progress": str(text)}:
                    yield text
                case {"error": str(text)}:
                    raise DeployError(text)
                case {"done": True}:
                    return
    raise DeployError("the supervisor ended before it had done so")
