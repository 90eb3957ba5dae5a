"""A plan that cannot work is refused with every reason."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.errors import PlanError
from deploy.plan import PLANS, Plan
from deploy.plan_check import Machine, check, read, reasons, to_start
from deploy.repositories import Model, read_models
from deploy.settings import REPOSITORIES

HERE = Machine(cores=frozenset({0, 1}), is_local=lambda host: host.startswith("127."))
SHIPPED = sorted(PLANS.glob("*.yaml"))


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return read_models(REPOSITORIES, {})


def plan(servers: dict[str, Any], **more: Any) -> Plan:
    return Plan.model_validate({"front": "front", "servers": {"front": {}, **servers}, **more})


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_plans_can_work(path: Path) -> None:
    assert {"turn", "think"} <= read(Plan.read(path)).keys()


def test_a_plan_may_take_other_configs() -> None:
    served = plan({"llm": {"stages": ["think"]}}, config_name="served")
    assert read(served)["think"].config.backend == "served_llm"
    assert read(plan({}))["think"].config.backend == "ar_loop"


def ports(first: int) -> dict[str, int]:
    return {"http": first, "grpc": first + 1, "metrics": first + 2}


BEHIND_BLS = {"engine": "bls", "session_bytes": 0}
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"b": {"stages": ["thinks"]}}, {}, r"servers\.b\.stages: no model 'thinks'; known: acoustic,"),
    ({}, {"models": ["torn"]}, r"models: no model 'torn'; known"),
    ({}, {"front": "door"}, r"front: no server 'door'; servers: front"),
    ({}, {"stages": {"thinks": {"slots": 1}}}, r"stages\.thinks: no model"),
    (
        {},
        {"stages": {"think": {"slot": 1}}},
        r"stages\.think: .*no parameter 'slot'; known",
    ),
    (
        {},
        {"stages": {"acoustic": {"engines": 2}}},
        r"stages\.acoustic\.engines: only 1, since its",
    ),
    (
        {"b": {"stages": ["think"], "device": "gpu"}},
        {"devices": {"tpu": {}}},
        r"servers\.b\.device: no device 'gpu'; devices: tpu",
    ),
    (
        {"b": {"stages": ["think"]}, "c": {"stages": ["think", "prosody"]}},
        {},
        r"stage 'think' is on b and c; one must do",
    ),
    ({"b": {"stages": ["think", "think"]}}, {}, r"stage 'think' is twice on b"),
    ({"b": {"stages": ["voice_turn"]}}, {}, r"'voice_turn' only wires stages .* in the front"),
    ({"b": {"stages": ["turn"]}}, {}, r"'turn' only wires stages together"),
    ({"b": {"stages": ["vad"]}}, {}, r"'vad' keeps sequences, which a proxy cannot pass on"),
    ({"b": {"stages": ["prosody_step"]}}, {}, r"'prosody_step' runs inside 'prosody'; place that"),
    (
        {"b": {"stages": ["think_step"]}},
        {"stages": {"think": BEHIND_BLS}},
        r"'think_step' keeps the state of 'think', and must",
    ),
    (
        {"b": {"stages": ["think", "think_step"], "replicas": 2}},
        {"stages": {"think": BEHIND_BLS}},
        r"'think_step' keeps the state of 'think'; leave it out, and every replica gets one",
    ),
    (
        {"front": {"replicas": 2}},
        {},
        r"servers\.front\.replicas: .*stages that live in the front",
    ),
    ({"b": {}}, {}, r"servers\.b: serves no stage; only the front may"),
    (
        {"b": {"stages": ["think"], "device": "d"}},
        {"devices": {"d": {"cores": [1, 2, 7]}}},
        r"devices\.d\.cores: .* to run 'b', has no core 2, 7; it has 0, 1",
    ),
    ({"b": {"stages": ["think"], "host": "0.0.0.0"}}, {}, r"servers\.b\.host: give the address"),
    ({"b": {"stages": ["think"], "host": "10.0.0.2"}}, {}, r"servers\.b: runs on another machine"),
    (
        {"b": {"stages": ["think"], "host": "10.0.0.2", "ports": ports(8000)}},
        {},
        r"servers\.front\.host: 127\.0\.0\.1 cannot be reached from 10\.0\.0\.2",
    ),
    (
        {"front": {"ports": ports(8000)}, "b": {"stages": ["think"], "ports": ports(8002)}},
        {},
        r"127\.0\.0\.1:8002 is used twice, for metrics of front-1 and http of b-1",
    ),
    (
        {"b": {"stages": ["think"], "ports": ports(65530), "replicas": 2}},
        {},
        r"servers\.b\.ports: http of b-2 would be 65540, above 65535",
    ),
    (
        {"b": {"stages": ["think"], "device": "d", "replicas": 3}},
        {"devices": {"d": {"bytes": "1GiB"}}, "stages": {"think": {"bytes": "512MiB"}}},
        r"devices\.d\.bytes: 1 GiB, but its servers need 1\.5 GiB \(b x 3: 1\.5 GiB, each "
        r"think 512 MiB\)",
    ),
]


@pytest.mark.parametrize(("servers", "more", "reason"), REFUSED)
def test_what_cannot_work_is_refused_with_the_reason(
    models: dict[str, Model], servers: dict[str, Any], more: dict[str, Any], reason: str
) -> None:
    found = reasons(plan(servers, **more), models, HERE)
    assert [line for line in found if re.search(reason, line)], found


def test_every_reason_is_told(models: dict[str, Model]) -> None:
    servers = {"b": {"stages": ["vad", "turn"]}, "c": {"stages": []}}
    with pytest.raises(PlanError) as caught:
        check(plan(servers), models, HERE)
    assert len(str(caught.value).splitlines()) == 3


def test_artefacts_count_where_they_are_more_than_was_declared(
    models: dict[str, Model], tmp_path: Path
) -> None:
    """A stage's own files, and those of the step model that it calls."""
    loops = {}
    for name, size in (("think", 100), ("think_step", 4000)):
        folder = tmp_path / name
        (folder / "1").mkdir(parents=True)
        (folder / "1" / "weights").write_bytes(bytes(size))
        loops[name] = Model(name, folder, folder / "config.pbtxt", models[name].config)
    given = plan(
        {"b": {"stages": ["think"], "device": "d", "replicas": 2}},
        devices={"d": {"bytes": 8199}},
        stages={"think": {"bytes": 50}},
    )
    (reason,) = reasons(given, models | loops, HERE)
    assert "its servers need 8.01 KiB (b x 2: 8.01 KiB, each think 4 KiB)" in reason
    roomy = given.model_copy(
        update={"devices": {"d": given.devices["d"].model_copy(update={"bytes": 8200})}}
    )
    assert reasons(roomy, models | loops, HERE) == []


def test_a_front_on_loopback_may_reach_a_server_on_this_machines_other_address(
    models: dict[str, Model],
) -> None:
    both = Machine(cores=frozenset({0}), is_local=lambda host: True)
    assert reasons(plan({"b": {"stages": ["think"], "host": "10.0.0.2"}}), models, both) == []


def test_servers_of_one_machine_share_its_memory(models: dict[str, Model]) -> None:
    servers = {
        "b": {"stages": ["think"], "replicas": 2},
        "c": {"stages": ["prosody"], "device": "d"},
    }
    given = plan(servers, devices={"d": {"gpu": 0}}, stages={"think": {"bytes": "2GiB"}})
    small = replace(HERE, bytes=4 * 2**30)
    (reason,) = reasons(given, models, small)
    assert reason.startswith("this machine has 4 GiB, but its servers need")
    assert "think 4 GiB" in reason
    assert "tritonserver 1.41 GiB" in reason
    assert "prosody 2" not in reason, "it is on the GPU"
    assert reasons(given, models, replace(HERE, bytes=2**36)) == []


def test_only_servers_of_this_machine_are_started() -> None:
    given = plan(
        {
            "b": {"stages": ["think"], "host": "10.0.0.2", "ports": ports(8000)},
            "c": {"stages": ["prosody"]},
        }
    )
    assert to_start(given, ["front", "c"], HERE) == ["front", "c"]
    with pytest.raises(PlanError, match=r"b \(10\.0\.0\.2\); start .* here: --only front,c"):
        to_start(given, None, HERE)
    with pytest.raises(PlanError, match=r"no server d in the plan; servers: front, b, c"):
        to_start(given, ["d"], HERE)
    with pytest.raises(PlanError, match="started elsewhere, so their ports must be given: front"):
        to_start(given, ["c"], HERE)
