"""Orders to a running supervisor: one line of JSON over a Unix socket, answered line by line."""

import json
import os
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any, Final

from deploy.errors import DeployError

PATIENCE_S: Final = 5.0
"""With whoever gives an order, and may be stopped in the middle of reading: what is done does not
wait for that any longer, and tells no more."""

Scale = Callable[[str, int, Callable[[str], None]], None]
"""Scale a stage to a count, and tell what is being done."""

Order = Callable[[Mapping[str, Any], Callable[[str], None]], Any]
"""Obey what is given with an order, and tell what is being done; what is to be answered."""


class Control:
    """Takes {"scale": stage, "to": count}, or {"order": one of `orders`, ...}; answers
    {"progress": text} some times, then {"done": true, "told": ...} or {"error": text}. For this
    user alone."""

    def __init__(
        self, path: Path, scale: Scale | None = None, orders: Mapping[str, Order] | None = None
    ) -> None:
        self.path = path
        path.unlink(missing_ok=True)

        class Handler(socketserver.StreamRequestHandler):
            timeout = PATIENCE_S
            listens = True

            def handle(self) -> None:
                def answer(**told: object) -> None:
                    if self.listens:
                        try:
                            self.wfile.write(json.dumps(told).encode() + b"\n")
                        except OSError:
                            self.listens = False

                _obey(self.rfile.readline(), scale, orders or {}, answer)

        self._server = _Server(str(path), Handler)
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


def _obey(
    line: bytes, scale: Scale | None, orders: Mapping[str, Order], answer: Callable[..., None]
) -> None:
    def tell(text: str) -> None:
        answer(progress=text)

    try:
        match json.loads(line):
            case {"scale": str(stage), "to": int(count)} if scale is not None:
                scale(stage, count, tell)
                answer(done=True)
            case {"order": str(name)} as given if name in orders:
                answer(done=True, told=orders[name](given, tell))
            case _:
                known = ['{"scale": stage, "to": count}'] if scale is not None else []
                known += [f'{{"order": "{name}", ...}}' for name in orders]
                answer(error=f"orders are {', '.join(known)}")
    except (DeployError, OSError, ValueError) as failure:
        answer(error=str(failure))


def order(path: Path, stage: str, count: int) -> Iterator[str]:
    """Have a supervisor scale a stage; what it does meanwhile. DeployError when it does not."""
    for told in ask(path, {"scale": stage, "to": count}):
        match told:
            case {"progress": str(text)}:
                yield text


def ask(path: Path, order: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Give an order, and all that is answered, the last of which has "done". DeployError when it is
    not obeyed."""
    with socket(AF_UNIX, SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
        except OSError as fault:
            raise DeployError(f"the supervisor does not listen at {path}: {fault}") from fault
        connection.sendall(json.dumps(dict(order)).encode() + b"\n")
        for line in connection.makefile("rb"):
            match json.loads(line):
                case {"error": str(text)}:
                    raise DeployError(text)
                case {"done": True} as told:
                    yield told
                    return
                case told:
                    yield told
    raise DeployError("the supervisor ended before it had done so")
