"""The files of a plan's manifests: a kustomize base, and an overlay to begin with. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from deploy.kubernetes import around
from deploy.kubernetes.groups import APP, Group
from deploy.kubernetes.options import Options
from deploy.kubernetes.pods import PLAN_FILE, PLAN_MAP, Manifest, deployment

BASE, OVERLAY = "base", "overlay"
NAMESPACE_FILE: Final = "namespace.yaml"
RULES: Final = "prometheus-adapter-rules.yaml"
KUSTOMIZATION: Final = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
MADE: Final = "# Made by `python -m deploy kubernetes`: changes belong into the overlay.\n"
YOURS: Final = "# Yours: made once, and never written over.\n"
RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}


def base(groups: Sequence[Group], plan_text: str, options: Options) -> dict[str, str]:
    """Path below the folder -> text; one resource a file."""
    resources = dict(_resources(groups, options))
    kustomization = {
        **KUSTOMIZATION,
        "resources": sorted(resources),
        "configMapGenerator": [{"name": PLAN_MAP, "files": [PLAN_FILE]}],
    }
    found = {name: MADE + _yaml(one) for name, one in resources.items()}
    found |= {"kustomization.yaml": MADE + _yaml(kustomization), PLAN_FILE: plan_text}
    return {f"{BASE}/{name}": text for name, text in found.items()} | {
        RULES: MADE + _yaml(around.adapter_rules())
    }


def overlay(groups: Sequence[Group], options: Options) -> dict[str, str]:
    """Namespace, image and replica counts: what every cluster has of its own."""
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": APP, "labels": RESTRICTED},
    }
    kustomization = {
        **KUSTOMIZATION,
        "namespace": APP,
        "resources": [NAMESPACE_FILE, f"../{BASE}"],
        "images": [_registered(image) for image in _images(groups, options)],
        "patches": [_replicas(group, options) for group in groups if group.is_scaled],
    }
    found: dict[str, Manifest] = {
        NAMESPACE_FILE: namespace,
        "kustomization.yaml": kustomization,
    }
    return {f"{OVERLAY}/{name}": YOURS + _yaml(one) for name, one in found.items()}


def _images(groups: Sequence[Group], options: Options) -> list[str]:
    used = (options.gpu_image if group.gpus else options.image for group in groups)
    return list(dict.fromkeys(used))


def _registered(image: str) -> dict[str, str]:
    name, _, tag = image.rpartition(":")
    return {"name": name, "newName": f"registry.example.org/{name}", "newTag": tag}


def _replicas(group: Group, options: Options) -> Manifest:
    least, most = group.replicas, max(group.replicas, options.most_replicas)
    patch = [
        {"op": "replace", "path": "/spec/minReplicas", "value": least},
        {"op": "replace", "path": "/spec/maxReplicas", "value": most},
    ]
    target = {"kind": "HorizontalPodAutoscaler", "name": group.name}
    return {"target": target, "patch": _yaml(patch)}


def _resources(groups: Sequence[Group], options: Options) -> Iterator[tuple[str, Manifest]]:
    yield "serviceaccount.yaml", around.service_account()
    for group in groups:
        made = {
            "deployment": deployment(group, options),
            "service": around.headless_service(group),
            "poddisruptionbudget": around.disruption_budget(group),
            "networkpolicy": around.network_policy(group, options),
        }
        if group.is_front:
            made["service-callers"] = around.front_service(group)
        if group.is_scaled:
            made["horizontalpodautoscaler"] = around.autoscaler(group, options)
        for kind, manifest in made.items():
            yield f"{group.name}-{kind}.yaml", manifest


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Says what comes twice twice, instead of referring to it."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _yaml(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=100))
