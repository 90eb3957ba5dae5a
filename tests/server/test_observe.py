"""A real server, watched: by Prometheus, by a collector of traces, and by its log."""

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber
from rich.progress import Progress

from client import audio
from client.turns import TurnClient
from deploy.errors import UpgradeFailed
from deploy.figures import read_metrics
from deploy.json_log import JsonLog, following
from deploy.launcher import Server
from deploy.observe import dashboard
from deploy.rolling.upgrades import Terms
from deploy.settings import Settings
from deploy.stubs import stubs
from loadtest.apart.stand import emulating
from loadtest.chaos.caller import DOOR, Caller, Told
from loadtest.operate import alerts, traces
from loadtest.operate.cases import OBSERVE
from loadtest.operate.collector import reading
from loadtest.operate.prometheus import LEAST_S, scraping
from loadtest.operate.stand import THINK, release, standing
from loadtest.seed.experiment import EMULATED
from python_backends.log_format import LOG_FORMAT

pytestmark = pytest.mark.server

ORDER = Path(__file__).parents[2] / "samples" / "order-1.wav"
SOON_S = 10.0
SUFFIXES = ("_bucket", "_sum", "_count")
ONLY_WHERE_TRACED = {"tristage_spans_total"}


def named() -> set[str]:
    """Every metric of ours that a rule, an alert or a panel asks for."""
    files = (OBSERVE / "rules.yaml", OBSERVE / "alerts.yaml", dashboard.TARGET)
    text = "".join(file.read_text() for file in files)
    return set(re.findall(r"\btristage_\w+", text)) - ONLY_WHERE_TRACED


def recorded() -> set[str]:
    rules = yaml.safe_load((OBSERVE / "rules.yaml").read_text())
    return {rule["record"] for group in rules["groups"] for rule in group["rules"]}


def test_every_metric_that_is_asked_for_is_told_by_a_real_server(server: Server) -> None:
    with TurnClient(server.grpc_address) as client:
        list(client.turn(audio.read(ORDER)))
    deadline = time.monotonic() + SOON_S
    while missing := named() - set(re.findall(r"^\w+", read_metrics(server.metrics_address), re.M)):
        assert time.monotonic() < deadline, missing
        time.sleep(0.1)


@pytest.mark.full
def test_a_real_prometheus_records_every_rule_of_a_real_run(server: Server, tmp_path: Path) -> None:
    sound = audio.read(ORDER)
    with (
        scraping(server.metrics_address, tmp_path, factor=10) as prometheus,
        TurnClient(server.grpc_address) as client,
    ):
        until = time.monotonic() + 25
        found: set[str] = set()
        while time.monotonic() < until or found != recorded():
            assert time.monotonic() < until + 30, recorded() - found
            list(client.turn(sound))
            found |= {name for name in recorded() - found if prometheus.query(name)}
        assert prometheus.fired() <= {"FirstAudioLate", "ComputeBound", "ScheduleBound"}


@pytest.mark.full
@pytest.mark.parametrize("fault", [alerts.HEALTHY, *alerts.FAULTS], ids=lambda one: one.name)
def test_a_fault_sets_off_its_alerts_and_no_others(fault: alerts.Fault, tmp_path: Path) -> None:
    fired, _ = alerts.observed(fault, tmp_path)
    assert fired == fault.fires


@pytest.mark.full
def test_upgrades_set_off_no_alert_though_one_dies_on_trial(tmp_path: Path) -> None:
    """A process that ends in order takes its rows along; one that was killed leaves a row, and
    another process serves its stage."""
    folder, terms = release(tmp_path / "new", [THINK]), Terms(trial_s=0.2, drain_s=30.0)

    def kill(what: str) -> None:
        if "on trial" in what:
            for stub in stubs(stand.server.pid, [f"{THINK}.v3"]):
                os.kill(stub.pid, signal.SIGKILL)

    async def one_turn() -> None:
        caller = Caller(stand.server.grpc_address)
        assert (await caller.speak()).outcome == "ok"
        await caller.close()

    with (
        standing(tmp_path / "out") as stand,
        scraping(stand.server.metrics_address, tmp_path / "prometheus", alerts.FACTOR) as watching,
    ):

        def ended() -> list[float]:
            time.sleep(2 * LEAST_S + alerts.AFTER_S)
            asyncio.run(one_turn())
            assert watching.fired() == set()
            assert {float(one["value"][1]) for one in watching.query("tristage:stage_up")} == {1}
            return [float(one["value"][1]) for one in watching.query("tristage:ended > 0")]

        asyncio.run(one_turn())
        stand.upgrades.upgrade([THINK], folder=folder, terms=terms)
        assert ended() == []
        with pytest.raises(UpgradeFailed):
            stand.upgrades.upgrade(
                [THINK], folder=folder, terms=replace(terms, trial_s=20.0), tell=kill
            )
        assert ended() == [1]


@pytest.mark.full
def test_a_collector_has_every_span_of_a_hundred_turns(tmp_path: Path) -> None:
    with Progress(disable=True) as progress:
        found = traces.traces(tmp_path, 1, progress)
    assert found.detail["wrong"] == []
    for name, target in traces.TARGETS.items():
        figure = found.figures[name]
        assert figure is not None
        assert target.met(figure), (name, figure)


@pytest.mark.full
def test_a_collector_reads_the_log_with_its_times_levels_and_turns(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    with log.open("w") as file:
        writes = JsonLog(file.write)
        writes("loading models")
        writes.told("lost", "model 'think': its process has ended")
        writes.write(
            {
                "time": "2026-12-01T00:00:01.250000Z",
                "level": "error",
                "process": "stage",
                "message": "gone",
                "turn": "t-1",
                "code": "STAGE_FAILED",
            }
        )
    with reading(log, tmp_path) as sink:
        deadline = time.monotonic() + SOON_S
        while len(records := sink.records()) < 3:
            assert time.monotonic() < deadline, (tmp_path / "otelcol.log").read_text()[-2000:]
            time.sleep(0.1)
    told = [{one.key: one.value.string_value for one in record.attributes} for record in records]
    assert [one["process"] for one in told] == ["launcher", "launcher", "stage"]
    assert told[1]["stage"] == "think"
    assert (told[2]["turn"], told[2]["code"]) == ("t-1", "STAGE_FAILED")
    assert records[2].time_unix_nano == 1_796_083_201_250_000_000
    severities = [SeverityNumber.Name(record.severity_number) for record in records]
    assert severities == [f"SEVERITY_NUMBER_{one}" for one in ("INFO", "WARN", "ERROR")]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tuple[Server, list[dict[str, object]]]]:
    """An emulated server whose log is JSON, and every record of it."""
    settings = Settings(
        repositories=[EMULATED],
        models=[DOOR],
        environment={LOG_FORMAT: "json"},
        out=tmp_path,
        exit_timeout_s=2,
    )
    found: list[dict[str, object]] = []
    with emulating(), Server(settings) as server, following(server, found.append):
        yield server, found


def test_every_failed_turn_is_in_the_log_with_its_code_also_once_that_was_cut(
    log: tuple[Server, list[dict[str, object]]],
) -> None:
    server, found = log

    async def speak() -> list[Told]:
        caller = Caller(server.grpc_address)
        told = await asyncio.gather(*(caller.speak(deadline_ms=100) for _ in range(5)))
        told += [await caller.speak()]
        await caller.close()
        return told

    for _ in range(2):
        *failed, answered = asyncio.run(speak())
        assert answered.outcome == "ok"
        wanted = {(one.turn_id, one.outcome) for one in failed}
        deadline = time.monotonic() + SOON_S
        while not wanted <= {(one.get("turn"), one.get("code")) for one in found}:
            assert time.monotonic() < deadline, [one for one in found if one["process"] == "stage"]
            time.sleep(0.1)
        assert answered.turn_id not in {one.get("turn") for one in found}
        assert "\0" not in server.log.text()
        assert server.log.bound(100)
    for one in found:
        assert json.loads(json.dumps(one)) == one
        assert {"time", "level", "process", "message"} <= one.keys()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", str(one["time"]))
        assert one["level"] in {"info", "warning", "error"}
