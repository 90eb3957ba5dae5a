"""A server starts ready, ends whatever happens, and leaves nothing behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from deploy.errors import ServerFailed
from deploy.launcher import Server
from deploy.processes import SHARED_MEMORY, servers_naming, start_time
from deploy.settings import Settings
from tests.server import tiny

pytestmark = pytest.mark.server
PATIENCE_S = 20.0
VOICE = 'parameters { key: "voice" value { string_value: "soft" } }'
LAUNCHER = """
import sys, time
from pathlib import Path
from deploy.launcher import Server
from deploy.settings import Settings
root = Path(sys.argv[1])
server = Server(Settings(repositories=[root / "models"], out=root / "out")).start()
print(server.pid, server.shared_memory_prefix, flush=True)
time.sleep(600)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tiny.python_model(
        tmp_path / "models", "say", 'return self.parameters["voice"] + " " + x', VOICE
    )
    return tmp_path


def settings(root: Path, **more: Any) -> Settings:
    return Settings(repositories=[root / "models"], out=root / "out", **more)


def text(value: str) -> InferInput:
    given = InferInput("X", [1], "BYTES")
    given.set_data_from_numpy(np.array([value.encode()], dtype=np.object_))
    return given


def ask(server: Server, value: str, model: str = "say") -> str:
    with InferenceServerClient(server.grpc_address) as client:
        return str(client.infer(model, [text(value)]).as_numpy("Y")[0].decode())


def until(condition: Callable[[], bool]) -> bool:
    """Whether the condition came true within PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def regions(prefix: str) -> list[Path]:
    return list(SHARED_MEMORY.glob(f"{prefix}*"))


def test_a_stopped_server_leaves_only_its_log(root: Path) -> None:
    shown: list[str] = []
    server = Server(settings(root), shown.append).start()
    prefix = server.shared_memory_prefix
    assert ask(server, "hello") == "soft hello"
    assert regions(prefix)
    assert server.stop() == 0
    assert not server.alive
    assert not regions(prefix)
    assert not servers_naming(prefix)
    assert [path.name for path in (root / "out").iterdir()] == ["logs"]
    assert "successfully loaded 'say'" in server.log.text()
    assert shown[-1].startswith("1 models ready")


def test_a_stop_ends_although_a_client_keeps_a_stream_open(root: Path) -> None:
    server = Server(settings(root, exit_timeout_s=1)).start()
    prefix = server.shared_memory_prefix
    client = InferenceServerClient(server.grpc_address)
    answers: Queue[Any] = Queue()
    client.start_stream(lambda result, error: answers.put(error or result))
    client.async_stream_infer("say", [text("hello")])
    answers.get(timeout=PATIENCE_S)
    server.stop()
    assert not servers_naming(prefix)
    assert not regions(prefix)
    client.stop_stream(cancel_requests=True)
    client.close()


def launched(root: Path) -> tuple[subprocess.Popen[str], int, str]:
    """A launcher in a process of its own: the process, the server's pid, the prefix."""
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(root)], stdout=subprocess.PIPE, text=True
    )
    assert launcher.stdout is not None
    pid, prefix = launcher.stdout.readline().split()
    return launcher, int(pid), prefix


def kill(launcher: subprocess.Popen[str]) -> None:
    launcher.kill()
    launcher.communicate()


def test_a_server_ends_with_a_launcher_that_is_killed(root: Path) -> None:
    launcher, _, prefix = launched(root)
    assert servers_naming(prefix)
    kill(launcher)
    assert until(lambda: not servers_naming(prefix))


def test_the_next_start_cleans_up_after_a_killed_server(root: Path) -> None:
    """Public case F1."""
    launcher, pid, prefix = launched(root)
    stub = next(found for found in servers_naming(prefix) if found != pid)
    os.kill(stub, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    kill(launcher)
    assert regions(prefix)
    assert start_time(stub) is not None
    with Server(settings(root)) as server:
        assert not regions(prefix)
        assert not servers_naming(prefix)
        assert ask(server, "hello") == "soft hello"


def test_a_model_whose_stub_died_is_noticed_and_comes_back(root: Path) -> None:
    """Public case F3."""
    with Server(settings(root, exit_timeout_s=1)) as server:
        prefix = server.shared_memory_prefix
        stub = next(found for found in servers_naming(prefix) if found != server.pid)
        os.kill(stub, signal.SIGKILL)
        with pytest.raises(ServerFailed, match="'say' failed"):
            server.check("say")
        server.reload("say")
        server.check("say")
        assert ask(server, "hello") == "soft hello"


def test_a_model_that_does_not_load_is_named_with_its_reason(root: Path) -> None:
    path = tiny.onnx_model(root / "models", "hollow", [], [("X", 1, ["b", 1])], [])
    path.unlink()
    with pytest.raises(ServerFailed, match=r"model 'hollow': .*run: make build"):
        Server(settings(root, models=["hollow"])).start()
    assert [path.name for path in (root / "out").iterdir()] == ["logs"]


def test_a_model_whose_first_inference_fails_is_named(root: Path) -> None:
    tiny.python_model(root / "models", "broken", 'raise ValueError("out of paper")')
    with pytest.raises(ServerFailed, match=r"(?s)model 'broken' failed.*out of paper"):
        Server(settings(root, models=["broken"])).start()


def test_two_servers_start_and_run_at_once_from_async_code(root: Path) -> None:
    """Public case F13."""

    async def said(voice: str) -> tuple[str, str]:
        async with Server(settings(root, overrides={"say": {"voice": voice}})) as server:
            return await asyncio.to_thread(ask, server, "hello"), server.shared_memory_prefix

    async def both() -> list[tuple[str, str]]:
        return await asyncio.gather(said("loud"), said("shy"))

    (loud, one), (shy, other) = asyncio.run(both())
    assert (loud, shy) == ("loud hello", "shy hello")
    assert one != other
