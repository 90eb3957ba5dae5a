"""The Deployment of a group. Pure."""

from typing import Any, Final

from deploy.access import VARIABLE as ADMIN_VARIABLE
from deploy.kubernetes.engines import FOLDER as ENGINES_FOLDER
from deploy.kubernetes.engines import REPOSITORY as ENGINES
from deploy.kubernetes.groups import APP, Group
from deploy.kubernetes.options import USER, Options
from deploy.pod.health import LIVE, READY, STARTED
from deploy.pod.placing import HEALTH_PORT, PORTS
from python_backends.remote_stage.resolved import VARIABLE as PLACEMENT_VARIABLE

Manifest = dict[str, Any]
PLAN_MAP: Final = f"{APP}-plan"
PLAN_FILE: Final = "deployment.yaml"
ADMIN_SECRET, ADMIN_KEY = f"{APP}-admin", "key"
TLS_SECRET: Final = f"{APP}-tls"
PLAN_FOLDER, TLS_FOLDER, OUT_FOLDER = "/etc/tristage/plan", "/etc/tristage/tls", "/run/tristage"
LATER_S: Final = 120
"""Than the launcher gives up loading, the cluster gives up a start: first inferences are between,
and the launcher says why."""

LIVE_EVERY_S: Final = 5
STORAGE_GIB: Final = 1
"""For logs, and what is made for a run."""

BUILD_MIB: Final = 8192
"""For building engines: a graph's tensors in fp32, twice, and TensorRT. A guess, not measured."""

GPU_HOST_MIB: Final = 4096
"""Of the host, for CUDA and TensorRT in a server and its stages. A guess, too."""

ENGINES_GIB: Final = 4
"""For engines, twice: as they are served, and in the cache."""


def labels(group: Group) -> dict[str, str]:
    """That its pods are found by."""
    return labels_of(group.server)


def labels_of(server: str) -> dict[str, str]:
    """Of the pods of a plan's server."""
    return {"app.kubernetes.io/name": APP, "app.kubernetes.io/component": server}


def metadata(group: Group, name: str = "") -> Manifest:
    """Of a resource of a group."""
    return {"name": name or group.name, "labels": labels(group)}


def deployment(group: Group, options: Options) -> Manifest:
    """Replicas are left to the autoscaler where the group has one."""
    spec: Manifest = {
        "selector": {"matchLabels": labels(group)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": _replacing(group)},
        "template": {
            "metadata": {"labels": labels(group), "annotations": _scraped()},
            "spec": _pod(group, options),
        },
    }
    if not group.is_scaled:
        spec = {"replicas": 1 if group.is_front else group.replicas, **spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(group),
        "spec": spec,
    }


def _replacing(group: Group) -> dict[str, int]:
    """A new pod first; but one that needs a GPU would wait for ever where none is spare."""
    is_scarce = group.gpus > 0
    return {"maxUnavailable": int(is_scarce), "maxSurge": int(not is_scarce)}


def _scraped() -> dict[str, str]:
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(PORTS.metrics),
        "prometheus.io/path": "/metrics",
    }


def _pod(group: Group, options: Options) -> Manifest:
    first = {"initContainers": [_builder(group, options)]} if group.engines else {}
    return {
        "serviceAccountName": APP,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "shareProcessNamespace": True,  # so that what a killed server leaves is reaped
        "terminationGracePeriodSeconds": options.grace_s,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels(group)},
            }
        ],
        **first,
        "containers": [_container(group, options)],
        "volumes": _volumes(group),
    }


def _builder(group: Group, options: Options) -> Manifest:
    """Engines are built on the GPU they are for, before a server fills it; never by a server."""
    return {
        "name": "engines",
        **_image(group, options),
        "command": ["python", "-m", "build", "tensorrt"],
        "args": [*group.engines, "--repository", ENGINES],
        "resources": _resources(group, max(group.memory_mib, BUILD_MIB)),
        "securityContext": _confined(),
        "volumeMounts": _mounts(group),
    }


def _image(group: Group, options: Options) -> dict[str, str]:
    image = options.gpu_image if group.gpus else options.image
    return {"image": image, "imagePullPolicy": "Always"}


def _confined() -> Manifest:
    return {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _container(group: Group, options: Options) -> Manifest:
    return {
        "name": "server",
        **_image(group, options),
        "command": ["python", "-m", "deploy", "--out", OUT_FOLDER],
        "args": _arguments(group, options),
        "env": _environment(group),
        "ports": [
            {"name": "grpc", "containerPort": PORTS.grpc},
            {"name": "metrics", "containerPort": PORTS.metrics},
            {"name": "health", "containerPort": HEALTH_PORT},
        ],
        "startupProbe": _probe(STARTED, period_s=2, failures=(options.start_s + LATER_S) // 2),
        "readinessProbe": _probe(READY, period_s=2, failures=2),
        "livenessProbe": _probe(LIVE, period_s=LIVE_EVERY_S, failures=3),
        "resources": _resources(group, group.memory_mib + (GPU_HOST_MIB if group.gpus else 0)),
        "securityContext": _confined(),
        "volumeMounts": _mounts(group),
    }


def _arguments(group: Group, options: Options) -> list[str]:
    tls = ["--tls", TLS_FOLDER] if group.has_tls else []
    times = ["--start-s", str(options.start_s), "--drain-s", str(options.drain_s)]
    more = ["--log-format", "json", *times, *(["--engines", ENGINES] if group.engines else [])]
    return ["pod", group.server, f"{PLAN_FOLDER}/{PLAN_FILE}", *more, *tls]


def _environment(group: Group) -> list[Manifest]:
    key = {"name": ADMIN_SECRET, "key": ADMIN_KEY, "optional": True}
    found: list[Manifest] = [{"name": ADMIN_VARIABLE, "valueFrom": {"secretKeyRef": key}}]
    if group.placement:
        found.append({"name": PLACEMENT_VARIABLE, "value": group.placement})
    return found


def _probe(path: str, *, period_s: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "health"},
        "periodSeconds": period_s,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


def _resources(group: Group, memory_mib: int) -> Manifest:
    """Memory is bounded by what is declared; no core is taken away in the middle of a step."""
    memory = {"memory": f"{memory_mib}Mi"}
    disk_gib = STORAGE_GIB + (ENGINES_GIB if group.engines else 0)
    storage = {"ephemeral-storage": f"{disk_gib}Gi"}
    gpus = {"nvidia.com/gpu": str(group.gpus)} if group.gpus else {}
    return {
        "requests": {"cpu": str(group.cores), **memory, **storage, **gpus},
        "limits": {**memory, **storage, **gpus},
    }


def _mounts(group: Group) -> list[Manifest]:
    tls = [{"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True}] if group.has_tls else []
    return [
        {"name": "plan", "mountPath": PLAN_FOLDER, "readOnly": True},
        *tls,
        *([{"name": "engines", "mountPath": ENGINES_FOLDER}] if group.engines else []),
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "run", "mountPath": OUT_FOLDER},
        {"name": "tmp", "mountPath": "/tmp"},
    ]


def _volumes(group: Group) -> list[Manifest]:
    shm = {"medium": "Memory", "sizeLimit": f"{group.shm_mib}Mi"}
    secret = {"secretName": TLS_SECRET, "defaultMode": 0o440}
    tls = [{"name": "tls", "secret": secret}] if group.has_tls else []
    engines = {"name": "engines", "emptyDir": {"sizeLimit": f"{ENGINES_GIB}Gi"}}
    return [
        {"name": "plan", "configMap": {"name": PLAN_MAP}},
        *tls,
        *([engines] if group.engines else []),
        {"name": "shm", "emptyDir": shm},
        {"name": "run", "emptyDir": {"sizeLimit": "768Mi"}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "128Mi"}},
    ]
