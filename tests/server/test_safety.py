"""What a server keeps from callers: its administration, its insides, and what others say."""

import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from client import audio
from client.turns import TurnClient, TurnOptions, Utterance, credentials
from deploy.cluster import Cluster
from deploy.cluster.commands import _look
from deploy.cluster.files import ClusterState, state_path
from deploy.keeper import keeping
from deploy.launcher import Server
from deploy.plan import TlsPlan
from deploy.processes import is_free
from deploy.readiness import probing
from deploy.settings import LISTENERS, Settings
from deploy.stubs import stubs
from deploy.tls import Tls
from deploy.watchdog import Watchdog
from loadtest.apart.stand import emulating, plan_of
from loadtest.apart.transfer import ask
from python_backends import wire
from python_backends.access import ADMIN_HEADER, OPEN, Access
from python_backends.errors import StageError
from tests.certificates import self_signed, signed

pytestmark = pytest.mark.server
ORDER = Path("samples/order-1.wav")
INSIDES = re.compile(r"Traceback|\.py\b|\.cc\b|(?<![\w.])/[\w.-]+/[\w.-]+|site-packages|At:")
PATIENCE_S = 20.0
LOST_S = 0.1
"""After so long the watchdog knows that a process has ended."""

ADMIN = {
    "RepositoryIndex": service_pb2.RepositoryIndexRequest(),
    "RepositoryModelUnload": service_pb2.RepositoryModelUnloadRequest(model_name="vocoder"),
    "RepositoryModelLoad": service_pb2.RepositoryModelLoadRequest(model_name="vocoder"),
    "SystemSharedMemoryStatus": service_pb2.SystemSharedMemoryStatusRequest(),
    "SystemSharedMemoryRegister": service_pb2.SystemSharedMemoryRegisterRequest(
        name="theirs", key="/theirs", byte_size=8
    ),
    "TraceSetting": service_pb2.TraceSettingRequest(),
    "LogSettings": service_pb2.LogSettingsRequest(),
}
HTTP_ADMIN = (
    ("POST", "v2/repository/index"),
    ("POST", "v2/repository/models/vocoder/unload"),
    ("GET", "v2/systemsharedmemory/status"),
    ("GET", "v2/trace/setting"),
    ("GET", "v2/logging"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates: of the server, with its issuer's behind it; of another that was issued so; of
    the authority that signs callers', and of a caller."""
    found = tmp_path_factory.mktemp("certificates")
    issuer = self_signed(found, "issuer")
    server = signed(found, "issuer", "server", "subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    server.write_text(server.read_text() + issuer.read_text())
    signed(found, "issuer", "neighbour")
    self_signed(found, "authority")
    signed(found, "authority", "caller")
    return found


@pytest.fixture(scope="module")
def secure(folder: Path) -> Iterator[Server]:
    """Every stage of a turn, over TLS, for callers with a certificate."""
    tls = Tls(folder / "server.pem", folder / "server.key", folder / "authority.pem")
    with Server(Settings(models=["turn"], tls=tls, exit_timeout_s=2), progress=print) as running:
        yield running


@pytest.fixture(scope="module")
def client(secure: Server, folder: Path) -> Iterator[TurnClient]:
    own = credentials(folder / "server.pem", folder / "caller.pem", folder / "caller.key")
    with TurnClient(secure.grpc_address, credentials=own) as one:
        yield one


@pytest.fixture(scope="module")
def stub(secure: Server) -> Iterator[Any]:
    with secure.access.dial(secure.grpc_address, wire.CHANNEL_OPTIONS) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def is_let_in(server: Server, access: Access) -> bool:
    with access.dial(server.grpc_address, ()) as channel:
        asking = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            return bool(asking.ServerLive(service_pb2.ServerLiveRequest(), timeout=5).live)
        except grpc.RpcError:
            return False


def http(server: Server, method: str, path: str, headers: dict[str, str]) -> int:
    request = urllib.request.Request(
        f"http://{server.http_address}/{path}",
        method=method,
        data=b"{}" if method == "POST" else None,
    )
    for name, value in headers.items():
        request.add_header(name, value)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


def test_a_turn_is_spoken_over_tls_and_the_log_tells_nothing_of_it(
    secure: Server, client: TurnClient
) -> None:
    before = len(secure.log.text())
    history = [Utterance("user", "one lemonade"), Utterance("assistant", "Got it, one lemonade.")]
    chunks = list(client.turn(audio.read(ORDER), history, session_id="a-secret-session"))
    heard = " ".join(chunk.heard for chunk in chunks)
    said = " ".join(chunk.text for chunk in chunks)
    assert "cheeseburgers" in heard
    assert sum(chunk.speech.size for chunk in chunks) > 10_000
    with pytest.raises(StageError):
        list(client.turn(audio.read(ORDER), [Utterance("waiter", "my secret words")]))
    log = secure.log.text()
    words = {*re.findall(r"\w{4,}", f"{heard} {said}"), "lemonade", "secret"}
    assert not [word for word in words if word in log[before:]]
    assert len(log) - before < 1000, "no sound either"


def test_only_callers_with_a_certificate_are_let_in(secure: Server, folder: Path) -> None:
    root = str(folder / "server.pem")
    own = Access(root=root, name="localhost", certificate=root, key=str(folder / "server.key"))
    assert is_let_in(secure, own)
    assert not is_let_in(secure, OPEN)
    assert not is_let_in(secure, Access(root=root, name="localhost"))
    stranger = str(self_signed(folder, "stranger"))
    shown = Access("", root, "localhost", stranger, stranger.replace(".pem", ".key"))
    assert not is_let_in(secure, shown)
    neighbour = str(folder / "neighbour.pem")
    shown = Access("", root, "localhost", neighbour, neighbour.replace(".pem", ".key"))
    assert not is_let_in(secure, shown)
    assert not is_let_in(secure, Access("", stranger, "localhost", root, own.key))


def test_a_server_is_reached_over_loopback_alone(secure: Server) -> None:
    """127.0.0.2 is this machine too, but not where it listens."""
    for purpose in LISTENERS:
        assert not is_free(getattr(secure.ports, purpose), "127.0.0.1")
        assert is_free(getattr(secure.ports, purpose), "127.0.0.2")


@pytest.mark.parametrize("call", ADMIN)
def test_administration_asks_for_the_key(stub: Any, call: str) -> None:
    for metadata in ((), Access("wrong" * 4).metadata):
        with pytest.raises(grpc.RpcError, match="restricted"):
            getattr(stub, call)(ADMIN[call], timeout=PATIENCE_S, metadata=metadata)


def test_administration_is_open_to_who_has_the_key(secure: Server, stub: Any) -> None:
    key = secure.access.metadata
    index = stub.RepositoryIndex(service_pb2.RepositoryIndexRequest(), metadata=key)
    assert "turn" in {model.name for model in index.models}
    assert secure.access.admin_key not in secure.log.text()
    secure.reload("vocoder")
    secure.check("vocoder")


@pytest.mark.parametrize(("method", "path"), HTTP_ADMIN)
def test_administration_over_http_asks_for_the_key_too(
    secure: Server, method: str, path: str
) -> None:
    assert http(secure, method, path, {}) == 403
    assert http(secure, method, path, {ADMIN_HEADER: "wrong"}) == 403


def test_what_only_tells_is_open_to_everybody(secure: Server, stub: Any) -> None:
    key = {ADMIN_HEADER: secure.access.admin_key}
    assert http(secure, "POST", "v2/repository/index", key) == 200
    assert http(secure, "GET", "v2/health/ready", {}) == 200
    assert stub.ModelConfig(service_pb2.ModelConfigRequest(name="turn")).config.name == "turn"
    assert stub.ModelStatistics(service_pb2.ModelStatisticsRequest(name="turn")).model_stats


def test_a_dead_process_is_brought_back_over_tls(secure: Server) -> None:
    told: list[str] = []
    with probing(secure.grpc_address, secure.access) as probe:
        watchdog = Watchdog(secure, probe, lambda kind, what: told.append(kind))
        [victim] = [stub for stub in stubs(secure.pid, secure.models) if stub.model == "prosody"]
        os.kill(victim.pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while "reloaded" not in told and time.monotonic() < deadline:
            watchdog.wait(0.1)
            watchdog.look()
    assert told == ["lost", "reloaded"]
    secure.check("prosody")


@pytest.mark.parametrize("victim", ["asr_encoder", "acoustic_step"])
def test_a_turn_is_served_though_a_model_that_a_stage_asks_has_just_died(
    secure: Server, client: TurnClient, victim: str
) -> None:
    [found] = [stub for stub in stubs(secure.pid, secure.models) if stub.model == victim]
    with keeping(secure, lambda kind, what: None):
        os.kill(found.pid, signal.SIGKILL)
        time.sleep(LOST_S)
        assert list(client.turn(audio.read(ORDER)))
    secure.check(victim)


def hostile() -> Iterator[Any]:
    """Requests that mean no good, each in another way."""
    sound = np.zeros((1, 160), np.float32)
    told = wire.to_request("think", {"HEARD": np.array([[b"x"]], object)}, turn="h", parameters={})
    told.raw_input_contents[0] = b"\xff\xff\xff\x7fxx"
    yield told
    for model, inputs in (
        ("turn", {"AUDIO": np.full((1, 160), np.nan, np.float32)}),
        ("turn", {"AUDIO": np.zeros((1, 61 * 16_000), np.float32)}),
        ("turn", {"AUDIO": sound, "SESSION_ID": np.array([[b"s" * 300]], object)}),
        ("turn", {"AUDIO": sound, "SESSION_ID": np.array([[b"\xff\xfe"]], object)}),
        ("turn", {"CONTROL": np.array([[b'{"cancel": 7}']], object)}),
        ("think", {"HEARD": np.array([[b"x" * 10**6]], object)}),
        ("prosody", {"TEXT": np.array([[b"y" * 10**5]], object)}),
        ("acoustic", {"PIECE": np.full((1, 3), -7, np.int32)}),
        ("asr_encoder", {"MEL": np.zeros((1, 80, 6000), np.float32)}),
        ("vocoder", {"FRAMES": np.zeros((1, 7, 3), np.float32)}),
        ("../../etc/passwd", {"AUDIO": sound}),
    ):
        yield wire.to_request(model, inputs, turn="h", parameters={})
    options = ({"voice": "../../etc/passwd"}, {"nobody/knows/this": "x"}, {"steps": "many"})
    for option in options:
        yield wire.to_request("turn", {"AUDIO": sound}, turn="h", parameters=option)
    theirs = wire.to_request("turn", {"AUDIO": sound}, turn="h", parameters={})
    del theirs.raw_input_contents[:]
    theirs.inputs[0].parameters["shared_memory_region"].string_param = "theirs"
    theirs.inputs[0].parameters["shared_memory_byte_size"].int64_param = 640
    yield theirs
    yield wire.to_request("turn", {"AUDIO": sound}, turn="h" * 10_000, parameters={})


def test_errors_tell_nothing_of_the_server_and_nobody_else_notices(
    secure: Server, stub: Any, client: TurnClient
) -> None:
    before = secure.log.text()
    errors = []
    for request in hostile():
        answer = next(iter(stub.ModelStreamInfer(iter([request]), timeout=PATIENCE_S)))
        assert answer.error_message, request
        errors.append(answer.error_message)
    assert not [error for error in errors if INSIDES.search(error)]
    assert max(map(len, errors)) < 1000
    assert "etc/passwd" not in secure.log.text()[len(before) :]
    chunks = list(client.turn(audio.read(ORDER), options=TurnOptions(max_tokens=4)))
    assert "cheeseburgers" in " ".join(chunk.heard for chunk in chunks)


def test_metrics_hold_figures_alone(secure: Server) -> None:
    with urllib.request.urlopen(f"http://{secure.metrics_address}/metrics") as answer:
        text = answer.read().decode()
    assert "tristage_requests_total" in text
    assert not re.search(r"cheeseburgers|lemonade|a-secret-session", text)
    assert secure.access.admin_key not in text


@pytest.mark.full
def test_servers_of_a_plan_speak_tls_with_each_other_and_share_memory(folder: Path) -> None:
    """Of emulated stages; what is shared asks for the key that all of them have."""
    root, key = folder / "server.pem", folder / "server.key"
    plan = plan_of("listen-front")
    plan = plan.model_copy(update={"tls": TlsPlan(certificate=str(root), key=str(key))})
    sound = {"AUDIO": np.zeros((1, 16), np.float32)}
    asked = wire.to_request("emu_turn", sound, turn="over-tls", parameters={})
    with emulating() as file, Cluster(plan, out=file.parent) as cluster:
        front, think = cluster.front, cluster.servers["think-1"]
        assert think.access == front.access
        assert not is_let_in(front, OPEN)
        with front.access.dial(cluster.grpc_address, wire.CHANNEL_OPTIONS) as channel:
            assert ask(service_pb2_grpc.GRPCInferenceServiceStub(channel), asked)
        with think.access.dial(think.grpc_address, ()) as channel:
            status = service_pb2_grpc.GRPCInferenceServiceStub(channel).SystemSharedMemoryStatus
            found = status(
                service_pb2.SystemSharedMemoryStatusRequest(), metadata=think.access.metadata
            )
        assert found.regions
        state = ClusterState.read(state_path(file.parent, plan.name))
        assert all(_look(one).ready for one in state.servers)
        assert think.access.admin_key not in state_path(file.parent, plan.name).read_text()
