"""`python -m deploy kubernetes [FILE] --out DIR`: manifests of a plan."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from deploy.kubernetes.base import NAMESPACE_FILE, OVERLAY, base, overlay
from deploy.kubernetes.groups import APP, Group, groups
from deploy.kubernetes.options import Options
from deploy.kubernetes.pods import ADMIN_KEY, ADMIN_SECRET, TLS_SECRET
from deploy.plan import Plan, find
from deploy.pod.placing import read
from deploy.pod.secret import CALLERS, CERTIFICATE, KEY

DEFAULT = Options()


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """The command beside the others of `python -m deploy`."""
    parser = commands.add_parser("kubernetes", help="write the manifests of a plan")
    parser.set_defaults(action=kubernetes)
    parser.add_argument("file", nargs="?", metavar="FILE", help="a plan, or a shipped one's name")
    parser.add_argument("--out", dest="folder", type=Path, required=True, metavar="DIR")
    parser.add_argument("--image", default=DEFAULT.image, help="NAME:TAG (%(default)s)")
    parser.add_argument(
        "--gpu-image", default=DEFAULT.gpu_image, help="of pods with a GPU (%(default)s)"
    )
    parser.add_argument("--max-replicas", type=int, default=DEFAULT.most_replicas)
    parser.add_argument(
        "--queue-target-ms",
        type=int,
        default=DEFAULT.queue_target_ms,
        help="mean wait that a stage is scaled by (%(default)s)",
    )
    parser.add_argument("--prometheus-namespace", default=DEFAULT.prometheus_namespace)
    parser.add_argument("--drain-s", type=int, default=DEFAULT.drain_s)
    parser.add_argument(
        "--start-s",
        type=int,
        default=DEFAULT.start_s,
        help="what a server may take to start: more for larger weights (%(default)s)",
    )


def kubernetes(options: argparse.Namespace) -> int:
    """Write base/ anew, and overlay/ where there is none yet."""
    plan = Plan.read(find(options.file))
    chosen = Options(
        image=options.image,
        gpu_image=options.gpu_image,
        most_replicas=options.max_replicas,
        queue_target_ms=options.queue_target_ms,
        prometheus_namespace=options.prometheus_namespace,
        drain_s=options.drain_s,
        start_s=options.start_s,
    )
    found = write(plan, chosen, options.folder)
    print("\n".join([*_first_steps(plan, options.folder / OVERLAY), *_unscaled(found)]))
    return 0


def _first_steps(plan: Plan, overlay: Path) -> Iterator[str]:
    """What is to be typed the first time, in order: a Secret needs its namespace."""
    if (overlay / NAMESPACE_FILE).exists():
        yield f"kubectl apply -f {overlay / NAMESPACE_FILE}"
    secret = f"kubectl create secret generic {{}} -n {APP}"
    key = f"--from-literal={ADMIN_KEY}=$(openssl rand -hex 16)"
    yield f"{secret.format(ADMIN_SECRET)} {key}  # optional"
    if plan.tls is not None:
        files = {CERTIFICATE: plan.tls.certificate, KEY: plan.tls.key, CALLERS: plan.tls.callers}
        given = " ".join(f"--from-file={key}={path}" for key, path in files.items() if path)
        yield f"{secret.format(TLS_SECRET)} {given}"
    yield f"kubectl apply -k {overlay}"


def _unscaled(found: Iterable[Group]) -> Iterator[str]:
    """Servers whose replicas nobody changes, though they might be several."""
    for group in found:
        if not (group.is_front or group.is_scaled):
            yield (
                f"# {group.name} is not scaled: {', '.join(group.view.stages)} tell no figure "
                f"to scale by. Replicas: {group.replicas}, as the plan says"
            )


def write(plan: Plan, options: Options, folder: Path) -> list[Group]:
    """What was written, by server. PlanError, before that, when the plan cannot work or cannot be
    said in Kubernetes."""
    found = groups(plan, read(plan))
    files = base(found, plan.path.read_text(), options)
    for stale in (folder / "base").glob("*.yaml"):
        stale.unlink()
    if not (folder / OVERLAY).exists():
        files |= overlay(found, options)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return found
