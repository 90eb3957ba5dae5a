"""`python -m deploy kubernetes [FILE] --out DIR`: manifests of a plan."""

import argparse
from pathlib import Path
from typing import Any

from deploy.kubernetes.base import OVERLAY, base, overlay
from deploy.kubernetes.groups import groups
from deploy.kubernetes.options import Options
from deploy.plan import Plan, find
from deploy.pod.placing import read

DEFAULT = Options()


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """The command beside the others of `python -m deploy`."""
    parser = commands.add_parser("kubernetes", help="write the manifests of a plan")
    parser.set_defaults(action=kubernetes)
    parser.add_argument("file", nargs="?", metavar="FILE", help="a plan, or a shipped one's name")
    parser.add_argument("--out", dest="folder", type=Path, required=True, metavar="DIR")
    parser.add_argument("--image", default=DEFAULT.image, help="NAME:TAG (%(default)s)")
    parser.add_argument("--max-replicas", type=int, default=DEFAULT.most_replicas)
    parser.add_argument(
        "--queue-target-ms",
        type=int,
        default=DEFAULT.queue_target_ms,
        help="mean wait that a stage is scaled by (%(default)s)",
    )
    parser.add_argument("--prometheus-namespace", default=DEFAULT.prometheus_namespace)
    parser.add_argument("--drain-s", type=int, default=DEFAULT.drain_s)


def kubernetes(options: argparse.Namespace) -> int:
    """Write base/ anew, and overlay/ where there is none yet."""
    plan = Plan.read(find(options.file))
    chosen = Options(
        image=options.image,
        most_replicas=options.max_replicas,
        queue_target_ms=options.queue_target_ms,
        prometheus_namespace=options.prometheus_namespace,
        drain_s=options.drain_s,
    )
    write(plan, chosen, options.folder)
    print(f"kubectl apply -k {options.folder / OVERLAY}")
    return 0


def write(plan: Plan, options: Options, folder: Path) -> None:
    """PlanError, before anything is written, when the plan cannot work or cannot be said in
    Kubernetes."""
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
