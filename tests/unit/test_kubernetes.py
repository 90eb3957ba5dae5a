"""Manifests of plans: rendered by kubectl, held to the schemas, and what they say."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.__main__ import _parser, main
from deploy.budget import refuse_over
from deploy.errors import PlanError
from deploy.kubernetes.around import BUSY, WAITED
from deploy.kubernetes.command import write
from deploy.kubernetes.groups import MIB, Group, groups
from deploy.kubernetes.options import Options
from deploy.plan import PLANS, Plan
from deploy.pod.command import SETTLE_S
from deploy.pod.placing import read
from deploy.repositories import with_proxies
from python_backends.remote_stage.resolved import VARIABLE, named_stages
from tests.manifests import Manifest, faults, linted, rendered

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(path.stem for path in PLANS.glob("*.yaml"))
GPUS = """
front: front
servers:
  front: {}
  listen: {stages: [encode, asr_decode], device: gpu0}
  think: {stages: [think], device: gpu1, replicas: 2}
  speak: {stages: [prosody, acoustic, vocoder], device: cpus}
devices:
  gpu0: {gpu: 0, bytes: 8GiB}
  gpu1: {gpu: 1}
  cpus: {cores: [0, 1, 2]}
stages: {think: {runtime: tensorrt}}
tls: {certificate: server.pem, key: server.key}
"""


def by_kind(manifests: list[Manifest], kind: str) -> dict[str, Any]:
    return {one["metadata"]["name"]: one["spec"] for one in manifests if one["kind"] == kind}


def planned(text: str, folder: Path) -> Plan:
    path = folder / "given.yaml"
    path.write_text(text)
    return Plan.read(path)


def of(plan: Plan, folder: Path, options: Options | None = None) -> list[Manifest]:
    write(plan, options or Options(), folder)
    return rendered(folder / "overlay")


def container(spec: Any) -> Any:
    [found] = spec["template"]["spec"]["containers"]
    return found


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    return of(Plan.read(PLANS / "stages-apart.yaml"), tmp_path_factory.mktemp("apart"))


@pytest.fixture(scope="module")
def on_gpus(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    folder = tmp_path_factory.mktemp("gpus")
    return of(planned(GPUS, folder), folder / "out")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_plan_is_valid(name: str, tmp_path: Path) -> None:
    manifests = of(Plan.read(PLANS / f"{name}.yaml"), tmp_path)
    assert faults(manifests) == []
    kinds = {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "ConfigMap"}
    assert kinds <= {one["kind"] for one in manifests}


def test_a_plan_with_gpus_and_certificates_is_valid(on_gpus: list[Manifest]) -> None:
    assert faults(on_gpus) == []


@pytest.mark.full
def test_the_linter_has_nothing_to_say(
    apart: list[Manifest], on_gpus: list[Manifest], tmp_path: Path
) -> None:
    assert linted(apart, tmp_path) == []
    assert linted(on_gpus, tmp_path) == []


def broken(manifests: list[Manifest], kind: str, place: str, value: Any) -> list[Manifest]:
    """With another value, or none, at one place of the first manifest of a kind."""
    found = copy.deepcopy(manifests)
    target = next(one for one in found if one["kind"] == kind)
    *way, last = place.split("/")
    for key in way:
        target = target[int(key)] if isinstance(target, list) else target[key]
    if value is None:
        del target[last]
    else:
        target[last] = value
    return found


POD = "spec/template/spec"
ONE = f"{POD}/containers/0"


@pytest.mark.parametrize(
    ("kind", "place", "value", "told"),
    [
        ("Deployment", f"{POD}/terminationGracePeriod", 5, "terminationGracePeriod"),
        ("Deployment", "spec/selector", None, "selector"),
        ("HorizontalPodAutoscaler", "spec/maxReplicas", "four", "maxReplicas"),
        ("NetworkPolicy", "spec/ingress/0/ports/0/port", {}, "port"),
        ("Service", "apiVersion", "v9", "no schema"),
        ("Deployment", f"{POD}/securityContext/runAsNonRoot", False, "root"),
        ("Deployment", f"{ONE}/securityContext/readOnlyRootFilesystem", False, "readOnly"),
        ("Deployment", f"{ONE}/readinessProbe", None, "readinessProbe"),
        ("Deployment", f"{ONE}/image", "tristage:latest", "version"),
        ("Deployment", f"{ONE}/resources/limits/memory", None, "memory"),
        ("Deployment", f"{POD}/volumes/1", {"name": "x", "hostPath": {"path": "/"}}, "host's"),
    ],
)
def test_a_broken_manifest_is_refused_by_the_same_check(
    apart: list[Manifest], kind: str, place: str, value: Any, told: str
) -> None:
    if place.endswith("volumes/1"):
        value = [value]
        place = place.removesuffix("/1")
    [fault] = faults(broken(apart, kind, place, value))
    assert kind in fault
    assert told in fault


@pytest.mark.full
def test_the_linter_refuses_a_privileged_container(apart: list[Manifest], tmp_path: Path) -> None:
    bad = broken(apart, "Deployment", f"{ONE}/securityContext/privileged", True)
    assert any(line.startswith("CKV_K8S_16 ") for line in linted(bad, tmp_path))


def test_every_stage_is_found_by_the_headless_service_of_its_server(apart: list[Manifest]) -> None:
    services, deployments = by_kind(apart, "Service"), by_kind(apart, "Deployment")
    env = {one["name"]: one.get("value") for one in container(deployments["tristage-front"])["env"]}
    named = named_stages(env[VARIABLE])
    assert {stage: where.name for stage, where in named.items()} == {
        "encode": "tristage-listen",
        "asr_decode": "tristage-listen",
        "think": "tristage-think",
        "prosody": "tristage-speak",
        "acoustic": "tristage-speak",
        "vocoder": "tristage-speak",
    }
    for where in named.values():
        service = services[where.name]
        assert service["clusterIP"] == "None"
        assert service["ports"][0]["port"] == where.port
        pods = deployments[where.name]["template"]["metadata"]["labels"]
        assert service["selector"].items() <= pods.items()


def test_callers_dial_one_service_in_front_of_the_front(apart: list[Manifest]) -> None:
    found = by_kind(apart, "Service")["tristage"]
    assert found["type"] == "ClusterIP"
    assert found["selector"]["app.kubernetes.io/component"] == "front"


def test_all_but_the_front_are_scaled_by_the_time_that_requests_wait(apart: list[Manifest]) -> None:
    scaled, deployments = by_kind(apart, "HorizontalPodAutoscaler"), by_kind(apart, "Deployment")
    assert scaled.keys() == deployments.keys() - {"tristage-front"}
    assert deployments["tristage-front"]["replicas"] == 1
    for name, one in scaled.items():
        assert one["scaleTargetRef"]["name"] == name
        assert "replicas" not in deployments[name]
        pods = [metric["pods"] for metric in one["metrics"]]
        assert {pod["metric"]["name"]: pod["target"]["averageValue"] for pod in pods} == {
            WAITED: "100m",
            BUSY: "800m",
        }


def test_metrics_of_the_autoscaler_are_made_of_what_a_stage_exports(tmp_path: Path) -> None:
    write(Plan.read(PLANS / "stages-apart.yaml"), Options(), tmp_path)
    rules = yaml.safe_load((tmp_path / "prometheus-adapter-rules.yaml").read_text())
    queries = {rule["name"]["as"]: rule["metricsQuery"] for rule in rules["rules"]["custom"]}
    assert set(queries) == {WAITED, BUSY}
    for part in ("sum", "count"):
        assert f"tristage_queue_seconds_{part}{{<<.LabelMatchers>>}}[1m]" in queries[WAITED]
    assert 'tristage_slots{state="running",<<.LabelMatchers>>}[1m]' in queries[BUSY]


def test_a_pod_has_more_time_to_end_than_it_takes_to_drain(apart: list[Manifest]) -> None:
    for one in by_kind(apart, "Deployment").values():
        arguments = container(one)["args"]
        drain_s = int(arguments[arguments.index("--drain-s") + 1])
        grace_s = one["template"]["spec"]["terminationGracePeriodSeconds"]
        assert grace_s > SETTLE_S + drain_s


def test_a_pod_writes_its_log_where_the_cluster_collects_it(apart: list[Manifest]) -> None:
    for one in by_kind(apart, "Deployment").values():
        arguments = container(one)["args"]
        assert arguments[arguments.index("--log-format") + 1] == "json"


def test_probes_ask_the_endpoint_that_names_silent_stages(apart: list[Manifest]) -> None:
    found = container(by_kind(apart, "Deployment")["tristage-think"])
    port = {one["name"]: one["containerPort"] for one in found["ports"]}["health"]
    assert port == 8003
    asked = {kind: found[kind]["httpGet"] for kind in found if kind.endswith("Probe")}
    assert {kind: one["path"] for kind, one in asked.items()} == {
        "startupProbe": "/started",
        "readinessProbe": "/ready",
        "livenessProbe": "/live",
    }
    assert {one["port"] for one in asked.values()} == {"health"}


def test_only_the_front_is_reached_by_everybody(apart: list[Manifest]) -> None:
    for name, policy in by_kind(apart, "NetworkPolicy").items():
        open_ports = [
            port["port"]
            for rule in policy["ingress"]
            if not rule.get("from")
            for port in rule["ports"]
        ]
        assert open_ports == ([8001] if name == "tristage-front" else []), name
        assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    policy = by_kind(apart, "NetworkPolicy")["tristage-think"]
    [requests, figures] = policy["ingress"]
    [caller] = requests["from"]
    component = caller["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
    assert component == "front"
    [prometheus] = figures["from"]
    name = "kubernetes.io/metadata.name"
    assert prometheus == {"namespaceSelector": {"matchLabels": {name: "monitoring"}}}
    assert [port["port"] for port in figures["ports"]] == [8002]


def test_devices_become_requests_and_a_gpu_is_the_pods_own(on_gpus: list[Manifest]) -> None:
    deployments = by_kind(on_gpus, "Deployment")
    needs = {name: container(one)["resources"] for name, one in deployments.items()}
    for name in ("tristage-listen", "tristage-think"):
        assert needs[name]["limits"]["nvidia.com/gpu"] == "1"
    assert "nvidia.com/gpu" not in needs["tristage-speak"]["limits"]
    assert needs["tristage-speak"]["requests"]["cpu"] == "3"
    variables = {one["name"] for pod in deployments.values() for one in container(pod)["env"]}
    assert "CUDA_VISIBLE_DEVICES" not in variables
    assert by_kind(on_gpus, "HorizontalPodAutoscaler")["tristage-think"]["minReplicas"] == 2


def test_a_pod_with_a_gpu_builds_its_engines_and_serves_them(on_gpus: list[Manifest]) -> None:
    wanted = {"tristage-listen": ["asr_encoder"], "tristage-think": ["think_step"]}
    for name, deployment in by_kind(on_gpus, "Deployment").items():
        pod, server = deployment["template"]["spec"], container(deployment)
        options = _parser().parse_args(server["args"])
        if name not in wanted:
            assert "initContainers" not in pod
            assert options.engines is None
            assert server["image"] == "registry.example.org/tristage:0.1.0"
            continue
        [builder] = pod["initContainers"]
        assert builder["args"] == [*wanted[name], "--repository", str(options.engines)]
        assert builder["image"] == server["image"] == "registry.example.org/tristage-gpu:0.1.0"
        for needs in (builder["resources"], server["resources"]):
            assert needs["limits"]["nvidia.com/gpu"] == needs["requests"]["nvidia.com/gpu"] == "1"
        shared = {"name": "engines", "mountPath": str(options.engines.parent)}
        assert shared in builder["volumeMounts"]
        assert shared in server["volumeMounts"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", r"servers\.think\.device: gpu1 has a gpu, and what think"),
        ("config_name: served\n", "config_name: served: think has a gpu"),
    ],
)
def test_a_gpu_that_nothing_would_use_is_refused_by_name(
    more: str, told: str, tmp_path: Path
) -> None:
    text = GPUS.replace("stages: {think: {runtime: tensorrt}}\n", more)
    plan = planned(text, tmp_path)
    with pytest.raises(PlanError, match=told):
        groups(plan, read(plan))


def test_certificates_come_from_a_secret(on_gpus: list[Manifest]) -> None:
    pod = by_kind(on_gpus, "Deployment")["tristage-front"]["template"]["spec"]
    [secret] = [one["secret"] for one in pod["volumes"] if "secret" in one]
    assert secret["secretName"] == "tristage-tls"
    assert pod["containers"][0]["args"][-2:] == ["--tls", "/etc/tristage/tls"]


def test_a_server_that_needs_a_gpu_is_replaced_though_none_is_spare(
    on_gpus: list[Manifest],
) -> None:
    found = {
        name: one["strategy"]["rollingUpdate"]
        for name, one in by_kind(on_gpus, "Deployment").items()
    }
    first, after = {"maxSurge": 1, "maxUnavailable": 0}, {"maxSurge": 0, "maxUnavailable": 1}
    assert found == {
        "tristage-front": first,
        "tristage-listen": after,
        "tristage-think": after,
        "tristage-speak": first,
    }


def test_what_a_killed_server_leaves_has_somebody_who_reaps_it(apart: list[Manifest]) -> None:
    for one in by_kind(apart, "Deployment").values():
        assert one["template"]["spec"]["shareProcessNamespace"] is True


UNMEASURED = """
front: front
servers:
  front: {}
  sound: {stages: [vocoder], replicas: 3}
  speak: {stages: [prosody, acoustic]}
"""


def test_a_server_whose_stages_tell_no_figure_to_scale_by_is_not_scaled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned(UNMEASURED, tmp_path)
    assert main(["kubernetes", str(tmp_path / "given.yaml"), "--out", str(tmp_path)]) == 0
    manifests = rendered(tmp_path / "overlay")
    assert faults(manifests) == []
    assert by_kind(manifests, "HorizontalPodAutoscaler").keys() == {"tristage-speak"}
    deployments = by_kind(manifests, "Deployment")
    assert deployments["tristage-sound"]["replicas"] == 3
    assert "replicas" not in deployments["tristage-speak"]
    told = capsys.readouterr().out
    assert "tristage-sound is not scaled: vocoder tell no figure" in told
    assert "tristage-speak is not" not in told


def test_a_start_may_take_as_long_as_it_is_given(tmp_path: Path) -> None:
    words = ["kubernetes", "one-server", "--out", str(tmp_path), "--start-s", "1200"]
    assert main(words) == 0
    manifests = rendered(tmp_path / "overlay")
    one = container(by_kind(manifests, "Deployment")["tristage-all"])
    assert one["args"][one["args"].index("--start-s") + 1] == "1200"
    probe = one["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > 1200


def test_the_first_steps_are_told_in_an_order_that_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned(GPUS.replace("key: server.key", "key: server.key, callers: ca.pem"), tmp_path)
    assert main(["kubernetes", str(tmp_path / "given.yaml"), "--out", str(tmp_path / "k8s")]) == 0
    namespace, admin, tls, rest = capsys.readouterr().out.splitlines()
    assert namespace == f"kubectl apply -f {tmp_path}/k8s/overlay/namespace.yaml"
    assert admin.startswith("kubectl create secret generic tristage-admin -n tristage ")
    assert tls == (
        "kubectl create secret generic tristage-tls -n tristage --from-file=tls.crt=server.pem "
        "--from-file=tls.key=server.key --from-file=callers.crt=ca.pem"
    )
    assert rest == f"kubectl apply -k {tmp_path}/k8s/overlay"


def found(name: str) -> dict[str, Group]:
    plan = Plan.read(PLANS / f"{name}.yaml")
    return {group.server: group for group in groups(plan, read(plan))}


def test_memory_is_what_models_declare_and_more_for_what_is_around_them() -> None:
    whole, parts = found("one-server")["all"], found("stages-apart")
    assert all(part.memory_mib < whole.memory_mib for part in parts.values())
    assert all(64 <= group.shm_mib < group.memory_mib for group in [whole, *parts.values()])
    assert parts["think"].callers == ("front",)
    assert parts["front"].calls == ("listen", "think", "speak")


LESS = """
front: front
servers: {front: {}, think: {stages: [think]}, listen: {stages: [encode, asr_decode]}}
stages: {think: {bytes: 700MiB}, encode: {bytes: 16GiB}}
"""


def test_a_pod_may_take_what_its_models_declare_whatever_less_the_plan_says(tmp_path: Path) -> None:
    """The launcher in the pod refuses to start with less."""
    plan = planned(LESS, tmp_path)
    models = read(plan)
    for group in groups(plan, models):
        seen = with_proxies(models, group.view.proxies, {})
        refuse_over(group.memory_mib * MIB, group.view.loads, seen)
        if group.server == "listen":
            assert group.memory_mib > 16 * 1024
    less, said = found("stages-apart")["think"], groups(plan, models)[1]
    assert (said.server, said.memory_mib) == ("think", less.memory_mib)


THINK = "front: front\nservers: {front: {}, think: {stages: [think]%s}}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (THINK % ", host: 10.0.0.2", "servers.think.host: 10.0.0.2"),
        (THINK % ", ports: {http: 1, grpc: 2, metrics: 3}", "servers.think.ports"),
        (THINK % ", environment: {CUDA_VISIBLE_DEVICES: 1}", "CUDA_VISIBLE_DEVICES: the cluster"),
        (
            "front: front\nservers: {front: {device: d}, think: {stages: [think], device: d}}\n"
            "devices: {d: {gpu: 0}}\n",
            "devices.d: front and think share it",
        ),
        (THINK % "" + "own: [mine]\n", "own: mine"),
        (
            "front: a_b\nservers: {a_b: {}, a-b: {stages: [think]}}\n",
            "two of them would be named tristage-a-b",
        ),
    ],
)
def test_what_cannot_be_said_in_kubernetes_is_refused_by_name(
    text: str, told: str, tmp_path: Path
) -> None:
    plan = planned(text, tmp_path)
    models = read(Plan.read(PLANS / "one-server.yaml"))
    with pytest.raises(PlanError, match=told):
        groups(plan, models)


def test_a_plan_that_cannot_work_writes_nothing(tmp_path: Path) -> None:
    plan = planned("front: front\nservers: {front: {}, x: {stages: [none]}}\n", tmp_path)
    with pytest.raises(PlanError, match="no model 'none'"):
        write(plan, Options(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_writes_the_base_anew_and_leaves_the_overlay_alone(tmp_path: Path) -> None:
    words = ["kubernetes", "three-servers", "--out", str(tmp_path), "--max-replicas", "7"]
    assert main(words) == 0
    mine, stale = tmp_path / "overlay" / "kustomization.yaml", tmp_path / "base" / "stale.yaml"
    mine.write_text("namespace: mine\nresources: [../base]\n")
    stale.write_text("{}")
    assert main(words) == 0
    assert not stale.exists()
    manifests = rendered(tmp_path / "overlay")
    assert {one["metadata"]["namespace"] for one in manifests} == {"mine"}
    assert by_kind(manifests, "HorizontalPodAutoscaler")["tristage-think"]["maxReplicas"] == 7


def test_the_readme_says_what_has_not_been_run() -> None:
    text = (ROOT / "deploy" / "kubernetes" / "README.md").read_text()
    assert "no cluster, no kubelet, no container runtime and no GPU" in text
