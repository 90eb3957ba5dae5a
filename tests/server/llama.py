"""llama.cpp's own server with a small model: an OpenAI-compatible endpoint as users have one.

As a program, `llama.py GGUF PORT`, it is that server.
"""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

THREADS = 1
ROWS = 2
CONTEXT = 2048
"""Of all rows."""

PATIENCE_S = 30.0


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Llama:
    """The process, started, killed and started again on one port."""

    def __init__(self, gguf: Path, port: int, log: Path) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self._command = [sys.executable, __file__, str(gguf), str(port)]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        until(lambda: self._get("/health") is not None)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def at_work(self) -> int:
        """Requests that it computes for."""
        return int(self._figure("requests_processing"))

    @property
    def tokens(self) -> int:
        """That it has made since it was started."""
        return int(self._figure("tokens_predicted_total"))

    def _figure(self, name: str) -> float:
        lines = (self._get("/metrics") or "").splitlines()
        (found,) = [line.split()[1] for line in lines if line.startswith(f"llamacpp:{name} ")]
        return float(found)

    def _get(self, path: str) -> str | None:
        try:
            with urllib.request.urlopen(self.address + path, timeout=PATIENCE_S) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, ConnectionError):
            return None


@contextmanager
def serving(gguf: Path, port: int, log: Path) -> Iterator[Llama]:
    llama = Llama(gguf, port, log)
    try:
        llama.start()
        yield llama
    finally:
        llama.kill()


def _serve(gguf: str, port: int) -> None:
    import xllamacpp

    settings: Any = xllamacpp.CommonParams()
    settings.model.path = gguf
    settings.hostnames, settings.port = ["127.0.0.1"], port
    settings.n_ctx, settings.n_parallel = CONTEXT, ROWS
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = THREADS
    settings.endpoint_metrics = True
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    time.sleep(3600)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
