"""A plan is read strictly, and says where it is wrong."""

from pathlib import Path

import pytest

from deploy.errors import PlanError
from deploy.plan import PLANS, Plan, ServerPlan, find
from deploy.settings import REPOSITORIES, Ports


def read(folder: Path, text: str) -> Plan:
    file = folder / "my-plan.yaml"
    file.write_text(text)
    return Plan.read(file)


def test_a_plan_is_one_front_and_its_servers(tmp_path: Path) -> None:
    plan = read(
        tmp_path,
        """
        front: listen
        models: [turn]
        repositories: [models, /abs/more]
        own: [mine]
        servers:
          listen: {}
          think: {stages: [think], device: gpu, replicas: 2, environment: {THREADS: 2, LOUD: true}}
        devices:
          gpu: {gpu: 1, cores: [0, 3], bytes: 1.5GiB}
        stages:
          think: {slots: 16, temperature: 0.5, fast: true, bytes: 512MiB}
        """,
    )
    assert plan.name == "my-plan"
    assert plan.folders(plan.repositories) == [tmp_path / "models", Path("/abs/more")]
    assert plan.folders(plan.own) == [tmp_path / "mine"]
    assert plan.servers["think"].environment == {"THREADS": "2", "LOUD": "true"}
    assert plan.devices["gpu"].bytes == 3 * 2**29
    assert plan.stages["think"].bytes == 2**29
    assert plan.overrides() == {"think": {"slots": "16", "temperature": "0.5", "fast": "true"}}


def test_what_is_left_out_is_this_project_on_loopback(tmp_path: Path) -> None:
    plan = read(tmp_path, "{front: all, servers: {all: {}}}")
    assert plan.models == ["turn", "transcribe", "speak", "vad", "listen", "live"]
    assert plan.folders(plan.repositories) == list(REPOSITORIES)
    assert plan.servers["all"] == ServerPlan()
    assert (plan.servers["all"].host, plan.servers["all"].ports) == ("127.0.0.1", None)
    assert plan.overrides() == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("front: a", "servers: missing"),
        ("", "front: missing"),
        ("[front]", "the file: input should be a valid dictionary"),
        ("{front: a, servers: {a: {}}, stage: {}}", "stage: unknown; accepted: front, servers,"),
        (
            "{front: a, servers: {a: {replica: 2}}}",
            "servers.a.replica: unknown; accepted: stages, device, replicas, host, ports,",
        ),
        (
            "{front: a, servers: {a: {ports: {http: 1, grpc: 2, metric: 3}}}}",
            "servers.a.ports.metric: unknown; accepted: http, grpc, metrics",
        ),
        (
            "{front: a, servers: {a: {}}, devices: {d: {memory: 1}}}",
            "devices.d.memory: unknown; accepted: gpu, cores, bytes",
        ),
        (
            "{front: a, servers: {a: {replicas: '2'}}}",
            "servers.a.replicas: input should be a valid integer, not '2'",
        ),
        ("{front: a, servers: {a: {replicas: 0}}}", "greater than or equal to 1, not 0"),
        (
            "{front: a, servers: {a: {stages: think}}}",
            "servers.a.stages: input should be",
        ),
        ("{front: a, servers: {think-2: {}}}", "servers.think-2: names are small letters"),
        ("{front: a, servers: {a: {}}, devices: {d: {bytes: 8Gb}}}", "one of B, KB, MB, GB, KiB,"),
        ("{front: a, servers: {a: {}}, devices: {d: {bytes: -1}}}", "devices.d.bytes: a size is"),
        (
            "{front: a, servers: {a: {}}, stages: {s: {slots: [1]}}}",
            "stages.s.slots: a value is",
        ),
        (
            "{front: a, servers: {a: {}}, stages: {s: {engines: 0}}}",
            "stages.s.engines: input",
        ),
        ("{front: a, servers: {a: {}, a: {}}}", "is not YAML: found a twice"),
        ("front: [a", "is not YAML: while parsing a flow sequence"),
    ],
)
def test_what_a_plan_gets_wrong_is_named_with_its_place(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(PlanError) as caught:
        read(tmp_path, text)
    assert told in str(caught.value)
    assert all(str(tmp_path / "my-plan.yaml") in line for line in told_lines(caught.value))


def told_lines(failure: PlanError) -> list[str]:
    """The first line of a YAML error, every line of ours."""
    lines = str(failure).splitlines()
    return lines[:1] if "is not YAML" in lines[0] else lines


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        read(tmp_path, "{front: A, servers: {a: {replicas: x}}, more: 1}")
    assert len(str(caught.value).splitlines()) == 3


def test_a_missing_plan_names_those_that_are_shipped(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="plans: one-server, stages-apart, three-servers"):
        Plan.read(tmp_path / "none.yaml")


def test_every_replica_has_ports_of_its_own() -> None:
    server = ServerPlan.model_validate({"ports": {"http": 8000, "grpc": 8001, "metrics": 8002}})
    assert server.ports_of(1) == Ports(8000, 8001, 8002)
    assert server.ports_of(3) == Ports(8020, 8021, 8022)
    assert ServerPlan().ports_of(1) is None


def test_a_plan_is_found_by_path_by_name_or_in_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find(None) == PLANS / "one-server.yaml"
    assert find("three-servers") == PLANS / "three-servers.yaml"
    assert find("three-servers.yaml") == Path("three-servers.yaml")
    (tmp_path / "deployment.yaml").write_text("")
    assert find(None) == Path("deployment.yaml")
