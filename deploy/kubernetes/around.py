"""What stands around the pods of a group: names, scaling, disruptions, who may reach whom. Pure."""

from typing import Any, Final

from deploy.kubernetes.groups import APP, Group
from deploy.kubernetes.options import Options
from deploy.kubernetes.pods import Manifest, labels, labels_of, metadata
from deploy.pod.placing import PORTS

WAITED: Final = "tristage_queue_seconds_mean"
"""What the autoscaler reads of each pod: seconds that requests waited before anything was computed
for them, the mean over RATE_WINDOW of its stage that waits longest."""

BUSY: Final = "tristage_slots_busy_share"
"""And the share of places that were taken, the mean over RATE_WINDOW of its fullest stage. Nobody
waits where there are just enough replicas: by the waiting alone one would be taken away."""

RATE_WINDOW: Final = "1m"
STABLE_S: Final = 300
DNS_PORT: Final = 53
LEAST_COUNT: Final = "1e-9"
PROCESS: Final = "<<.GroupBy>>, stage, started"
"""Labels that tell the rows of one process of one pod."""


def service_account() -> Manifest:
    """Pods ask the cluster for nothing."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": APP, "labels": {"app.kubernetes.io/name": APP}},
        "automountServiceAccountToken": False,
    }


def headless_service(group: Group) -> Manifest:
    """Its name stands for every ready pod."""
    return _service(group, group.name, {"clusterIP": "None"})


def front_service(group: Group) -> Manifest:
    """What callers dial."""
    return _service(group, APP, {"type": "ClusterIP"})


def _service(group: Group, name: str, kind: Manifest) -> Manifest:
    port = {"name": "grpc", "port": PORTS.grpc, "targetPort": "grpc"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(group, name),
        "spec": {**kind, "selector": labels(group), "ports": [port]},
    }


def autoscaler(group: Group, options: Options) -> Manifest:
    """By the time that requests wait, and not below what the busy places need: the larger of both
    counts. The front is one, and has none."""
    targets = {WAITED: options.queue_target_ms, BUSY: 10 * options.busy_target_percent}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(group),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": group.name},
            "minReplicas": group.replicas,
            "maxReplicas": max(group.replicas, options.most_replicas),
            "metrics": [_metric(name, thousandths) for name, thousandths in targets.items()],
            "behavior": {
                "scaleUp": {
                    "stabilizationWindowSeconds": 0,
                    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
                },
                "scaleDown": {
                    "stabilizationWindowSeconds": STABLE_S,
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
                },
            },
        },
    }


def _metric(name: str, thousandths: int) -> Manifest:
    target = {"type": "AverageValue", "averageValue": f"{thousandths}m"}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}


def adapter_rules() -> Manifest:
    """Rules of prometheus-adapter that make WAITED and BUSY of what pods tell on /metrics.

    Places count of processes that beat: a killed one's stay on /metrics as they were, for ever."""
    waited, count = (_sum(_over("rate", f"queue_seconds_{part}")) for part in ("sum", "count"))
    beats = f"{_over('rate', 'heartbeats_total')} > 0"
    taken, places = (
        _sum(f"{_over('avg_over_time', 'slots', states)} and on ({PROCESS}) {beats}")
        for states in ('state="running",', 'state=~"running|free",')
    )
    rules = {
        WAITED: ("tristage_queue_seconds_count", f"{waited} / clamp_min({count}, {LEAST_COUNT})"),
        BUSY: ("tristage_slots", f"{taken} / clamp_min({places}, {LEAST_COUNT})"),
    }
    return {"rules": {"custom": [_rule(name, *rule) for name, rule in rules.items()]}}


def _over(function: str, name: str, labels: str = "") -> str:
    return f"{function}(tristage_{name}{{{labels}<<.LabelMatchers>>}}[{RATE_WINDOW}])"


def _sum(rows: str) -> str:
    return f"sum({rows}) by (<<.GroupBy>>, stage)"


def _rule(name: str, series: str, of_a_stage: str) -> Manifest:
    known = {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}
    return {
        "seriesQuery": f'{series}{{namespace!="",pod!=""}}',
        "resources": {"overrides": known},
        "name": {"as": name},
        "metricsQuery": f"max({of_a_stage}) by (<<.GroupBy>>)",
    }


def disruption_budget(group: Group) -> Manifest:
    """One pod at a time; a sick one holds up nobody."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(group),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": labels(group)},
        },
    }


def network_policy(group: Group, options: Options) -> Manifest:
    """The front is reached by everybody, a stage by whose proxies need it, figures by Prometheus;
    outwards go questions for names, and requests to the stages that are called."""
    namespace = {"kubernetes.io/metadata.name": options.prometheus_namespace}
    figures = {
        "from": [{"namespaceSelector": {"matchLabels": namespace}}],
        "ports": [_port(PORTS.metrics)],
    }
    names = {"ports": [_port(DNS_PORT, "UDP"), _port(DNS_PORT)]}
    calls = [
        {"to": [{"podSelector": {"matchLabels": labels_of(name)}}], "ports": [_port(PORTS.grpc)]}
        for name in group.calls
    ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(group),
        "spec": {
            "podSelector": {"matchLabels": labels(group)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [*_callers(group), figures],
            "egress": [names, *calls],
        },
    }


def _callers(group: Group) -> list[Manifest]:
    """Rules for the port of requests; one with an empty `from` would let in everybody."""
    ports = [_port(PORTS.grpc)]
    if group.is_front:
        return [{"ports": ports}]
    callers = [{"podSelector": {"matchLabels": labels_of(name)}} for name in group.callers]
    return [{"from": callers, "ports": ports}] if callers else []


def _port(number: int, protocol: str = "TCP") -> dict[str, Any]:
    return {"protocol": protocol, "port": number}
