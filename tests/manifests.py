"""What manifests are held to: kubectl's rendering, the schemas of Kubernetes, rules of our own, and
a policy linter that lives in an environment of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import yaml

from build.fetch import CHECKOV, cache_dir
from build.kubectl import kubectl

Manifest = dict[str, Any]
KUBERNETES: Final = "1.34"
"""Of kubectl; autoscaling/v2, policy/v1 and networking.k8s.io/v1 are the same since 1.27."""

NOT_HELD_TO: Final = {
    "CKV_K8S_11": "no CPU limit: it would take the core away in the middle of a step",
    "CKV_K8S_35": "the admin key is read from the environment, as the launcher hands it to stages",
    "CKV_K8S_43": "an image's digest is known where it was pushed: the overlay's `images` takes it",
}
INSTALL_TIMEOUT_S, LINT_TIMEOUT_S = 600, 120


def rendered(folder: Path) -> list[Manifest]:
    """What `kubectl apply -k` would send."""
    words = [kubectl(), "kustomize", folder]
    answer = subprocess.run(words, capture_output=True, text=True, check=True)
    return [one for one in yaml.safe_load_all(answer.stdout) if one]


def faults(manifests: Sequence[Manifest]) -> list[str]:
    """Everything that is wrong, one a line: against the schemas, and against our own rules."""
    found = []
    for one in manifests:
        name = f"{one.get('kind')} {one.get('metadata', {}).get('name')}"
        found += [f"{name}: {fault}" for fault in [*_schema(one), *_rules(one)]]
    return found


def _schema(manifest: Manifest) -> Iterator[str]:
    try:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as fault:
        yield f"{'.'.join(map(str, fault.path))}: {fault.message}"
    except kubernetes_validate.SchemaNotFoundError as fault:
        yield f"no schema for {fault.kind} of {fault.api_version}"


def _rules(manifest: Manifest) -> Iterator[str]:
    if manifest.get("kind") != "Deployment":
        return
    pod = manifest["spec"]["template"]["spec"]
    if not pod.get("securityContext", {}).get("runAsNonRoot"):
        yield "may run as root"
    if pod.get("automountServiceAccountToken") is not False:
        yield "mounts a token of the cluster's API"
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        yield from _container_rules(container)
    for container in pod["containers"]:
        yield from _probe_rules(container)
    for volume in pod.get("volumes", []):
        if "hostPath" in volume:
            yield f"volume {volume['name']} is the host's"
        if "emptyDir" in volume and not volume["emptyDir"].get("sizeLimit"):
            yield f"volume {volume['name']} has no size"


def _container_rules(container: Manifest) -> Iterator[str]:
    context = container.get("securityContext", {})
    wanted = {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for key, value in wanted.items():
        if context.get(key) != value:
            yield f"container {container['name']}: {key} is not {value}"
    resources = container.get("resources", {})
    for kind in ("requests", "limits"):
        if "memory" not in resources.get(kind, {}):
            yield f"container {container['name']}: no memory in {kind}"
    if container.get("image", "").rpartition(":")[2] in ("", "latest"):
        yield f"container {container['name']}: an image without a version"


def _probe_rules(container: Manifest) -> Iterator[str]:
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if probe not in container:
            yield f"container {container['name']}: no {probe}"


def linted(manifests: Sequence[Manifest], folder: Path) -> list[str]:
    """What checkov finds, but for NOT_HELD_TO; `folder`: of a file that it reads."""
    file = folder / "manifests.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    words = [_checkov(), "--framework", "kubernetes", "--skip-download", "-o", "json", "-f", file]
    skip = ["--skip-check", ",".join(NOT_HELD_TO)]
    answer = subprocess.run(
        [*words, *skip], capture_output=True, text=True, timeout=LINT_TIMEOUT_S, check=False
    )
    told = json.loads(answer.stdout)
    assert told["summary"]["passed"], answer.stderr
    failed = told["results"]["failed_checks"]
    return [f"{one['check_id']} {one['check_name']}: {one['resource']}" for one in failed]


def _checkov() -> Path:
    """The program, installed the first time (290 MB) where it can hurt no other package."""
    place = cache_dir() / "tools" / f"{CHECKOV.name}-{CHECKOV.version}"
    program, done = place / "bin" / CHECKOV.name, place / ".installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        pin = f"{CHECKOV.name}=={CHECKOV.version}"
        pip = [place / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install"]
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        subprocess.run([*pip, "-q", pin], env=clean, timeout=INSTALL_TIMEOUT_S, check=True)
        done.touch()
    return program
