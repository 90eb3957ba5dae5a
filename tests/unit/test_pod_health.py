"""What probes of a pod are answered with, in fake time and over HTTP."""

import json
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.errors import PlanError, TlsUnfit
from deploy.plan import PLANS, Plan
from deploy.pod.health import DEAD_S, LIVE, READY, STARTED, Health
from deploy.pod.placing import NO_HTTP, Place, settings_of
from deploy.pod.probes import answering
from deploy.processes import LOCALHOST, free_ports
from deploy.settings import Ports
from deploy.tls import Tls
from python_backends.remote_stage.resolved import VARIABLE

SILENT_S = 5.0


def serving() -> Health:
    health = Health(start_s=300.0)
    health.started({"think": SILENT_S, "encode": SILENT_S}, 0.0)
    return health


def test_a_pod_that_starts_is_alive_and_not_ready() -> None:
    health = Health()
    assert health.why_not(STARTED, 0.0) == health.why_not(READY, 0.0) == ["the server is starting"]
    assert health.why_not(LIVE, 1000.0) == []


def test_a_stage_that_does_not_answer_is_named() -> None:
    health = serving()
    assert [health.why_not(path, 1.0) for path in (STARTED, READY, LIVE)] == [[], [], []]
    health.heard("encode", "", 1.0)
    health.heard("think", "its process is dead", 1.0)
    assert health.why_not(READY, 1.0) == ["stage 'think': its process is dead"]
    assert health.why_not(LIVE, 1.0) == []
    health.heard("think", "", 2.0)
    assert health.why_not(READY, 2.0) == []


def test_silence_ends_readiness_first_and_life_much_later() -> None:
    health = serving()
    health.heard("encode", "", 10.0)
    later = SILENT_S + 0.5
    assert health.why_not(READY, later) == [f"stage 'think' has not answered for {later:.1f} s"]
    assert health.why_not(LIVE, DEAD_S) == []
    assert health.why_not(LIVE, DEAD_S + 1.0) == ["stage 'think' has not answered for 121.0 s"]


def test_a_server_that_is_away_or_drains_is_not_ready() -> None:
    health = serving()
    health.server_away = "the server is down"
    assert health.why_not(READY, 0.0) == ["the server is down"]
    health.draining = True
    assert health.why_not(READY, 0.0) == ["the server is being stopped"]
    assert health.why_not(LIVE, 0.0) == []


def test_each_stage_may_be_silent_as_long_as_its_kind_may() -> None:
    health = Health()
    health.started({"think": 5.0, "vocoder": 60.0}, 0.0)
    health.heard("think", "", 50.0)
    assert health.why_not(READY, 50.0) == []
    health.heard("think", "", 61.0)
    assert health.why_not(READY, 61.0) == ["stage 'vocoder' has not answered for 61.0 s"]


def test_a_server_that_is_being_started_again_is_alive_as_long_as_a_start_may_take() -> None:
    health = serving()
    health.heard("think", "gone", 10.0)
    health.kept(10.0, serves=False)
    health.kept(200.0, serves=False)
    assert health.why_not(LIVE, 310.0) == [], "weights take longer than a silence may"
    assert health.why_not(LIVE, 311.0) == ["the server has been away for 301 s"]
    health.kept(311.0, serves=True)
    assert health.why_not(LIVE, 311.0) == health.why_not(READY, 311.0) == []
    health.heard("encode", "", 311.0 + DEAD_S)
    assert health.why_not(LIVE, 312.0 + DEAD_S) == ["stage 'think' has not answered for 121.0 s"]


def test_a_probe_may_come_while_a_stage_is_heard() -> None:
    health = serving()

    def hear() -> None:
        for number in range(20_000):
            health.heard(f"stage {number}", "away", 0.0)

    with ThreadPoolExecutor(1) as pool:
        hearing = pool.submit(hear)
        while not hearing.done():
            health.why_not(READY, 0.0)
        hearing.result()


def asked(port: int, path: str) -> tuple[int, list[str]]:
    try:
        with urllib.request.urlopen(f"http://{LOCALHOST}:{port}{path}", timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read())


def test_probes_are_answered_over_http() -> None:
    health = Health()
    with answering(health, LOCALHOST, free_ports(1)[0]) as port:
        assert asked(port, READY) == (503, ["the server is starting"])
        health.started({"think": SILENT_S}, time.monotonic())
        assert asked(port, READY) == (200, [])
        assert asked(port, "/x") == (404, [STARTED, READY, LIVE])


NAMED = {VARIABLE: "encode=listen:8001 asr_decode=listen:8001 think=think:8001"}


def test_a_pod_serves_its_part_of_the_plan_wherever_it_is(tmp_path: Path) -> None:
    plan = Plan.read(PLANS / "three-servers.yaml")
    place = Place("127.0.0.9", Ports(1, 2, 3))
    settings = settings_of(plan, "speak", place, tmp_path, NAMED)
    assert set(settings.proxies) == {"encode", "asr_decode", "think"}
    assert (settings.host, settings.ports) == ("127.0.0.9", Ports(1, 2, 3))
    assert settings.proxy_parameters["shared_memory_bytes"] == "0"
    assert NO_HTTP in settings.arguments
    assert not [key for key in settings.environment if "PLACEMENT" in key]


def test_a_pod_with_a_gpu_serves_from_its_engines(tmp_path: Path) -> None:
    place = Place(engines=tmp_path / "engines")
    settings = settings_of(Plan.read(PLANS / "three-servers.yaml"), "speak", place, tmp_path, NAMED)
    assert (settings.own, settings.config_name) == ((tmp_path / "engines",), "tensorrt")


@pytest.mark.parametrize(
    ("group", "environment", "told"),
    [
        ("hear", NAMED, "no server 'hear'; servers: listen, think, speak"),
        ("speak", {VARIABLE: "think=think:8001"}, "names no replicas of encode, asr_decode"),
        ("speak", {}, "names no replicas of encode, asr_decode, think"),
        ("speak", {VARIABLE: "think"}, "STAGE=NAME:PORT"),
    ],
)
def test_a_pod_that_could_not_serve_is_refused(
    group: str, environment: dict[str, str], told: str, tmp_path: Path
) -> None:
    plan = Plan.read(PLANS / "three-servers.yaml")
    with pytest.raises(PlanError, match=told):
        settings_of(plan, group, Place(), tmp_path, environment)


SECURE = """
front: front
servers: {front: {}, think: {stages: [think]}}
tls: {certificate: server.pem, key: server.key%s}
"""


def tls_of(folder: Path, *, callers: bool, files: tuple[str, ...]) -> Tls:
    """As a pod of a plan, that asks callers for certificates or not, has it with these files."""
    plan = folder / "plan.yaml"
    plan.write_text(SECURE % (", callers: callers.pem" if callers else ""))
    for name in files:
        (folder / name).touch()
    found = settings_of(Plan.read(plan), "think", Place(tls=folder), folder, {}).tls
    assert found is not None
    return found


PAIR = ("tls.crt", "tls.key")


def test_certificates_are_those_of_the_secret(tmp_path: Path) -> None:
    found = tls_of(tmp_path, callers=False, files=PAIR)
    assert found == Tls(tmp_path / "tls.crt", tmp_path / "tls.key", None)


def test_the_plan_says_whether_callers_need_certificates_and_no_file_does(tmp_path: Path) -> None:
    every = (*PAIR, "ca.crt", "callers.crt")
    assert tls_of(tmp_path, callers=False, files=every).callers is None
    assert tls_of(tmp_path, callers=True, files=every).callers == tmp_path / "callers.crt"


@pytest.mark.parametrize("files", [PAIR, (*PAIR, "ca.crt")])
def test_a_plan_with_callers_lets_nobody_in_where_they_are_missing(
    files: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(TlsUnfit, match=r"callers\.crt.*tls\.callers"):
        tls_of(tmp_path, callers=True, files=files)


def test_a_plan_with_certificates_is_not_served_in_plaintext(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(SECURE % "")
    with pytest.raises(TlsUnfit, match="--tls"):
        settings_of(Plan.read(plan), "think", Place(), tmp_path, {})
