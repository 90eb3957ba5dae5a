"""Figures that a server tells of itself on /metrics."""

import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from deploy.errors import ServerFailed

OURS = "tristage_"
FIRST = "1"
"""The version of a stage that its rows do not tell."""


@dataclass(frozen=True)
class Row:
    """One value of a stage; `labels` are those beside its stage and the start of its process."""

    name: str
    stage: str
    labels: Mapping[str, str]
    value: float


def rows(metrics: str, version: int | None = None) -> list[Row]:
    """What the stages of a server tell, from the text of /metrics; ServerFailed when it is torn.

    Only what the newest process of each stage says, or of those that serve a `version` of it: the
    server keeps the rows of killed ones.
    """
    try:
        found = list(_ours(metrics))
    except ValueError as fault:
        raise ServerFailed(f"metrics that cannot be read: {fault}") from fault
    if version is not None:
        found = [one for one in found if one[1].labels.get("version", FIRST) == str(version)]
    newest: dict[str, float] = {}
    for started, row in found:
        newest[row.stage] = max(started, newest.get(row.stage, started))
    return [row for started, row in found if started == newest[row.stage]]


def open_requests(metrics: str) -> dict[str, int]:
    """Stage -> requests it has accepted and not answered to the end."""
    found: dict[str, int] = {}
    for row in rows(metrics):
        if row.name == f"{OURS}open_requests":
            found[row.stage] = found.get(row.stage, 0) + round(row.value)
    return found


def remote_turns(metrics: str) -> dict[str, int]:
    """Replica -> turns that a server's proxies have there and that are not over."""
    found: dict[str, int] = {}
    for row in rows(metrics):
        if row.name == f"{OURS}remote_turns":
            replica = row.labels["replica"]
            found[replica] = found.get(replica, 0) + round(row.value)
    return found


def read_metrics(address: str, timeout_s: float = 1.0) -> str:
    """The text of /metrics; ServerFailed when the server does not tell."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=timeout_s) as answer:
            return str(answer.read().decode())
    except (OSError, HTTPException, UnicodeDecodeError) as fault:
        raise ServerFailed(f"no metrics at {address}: {fault}") from fault


def _ours(metrics: str) -> Iterator[tuple[float, Row]]:
    """With the start of the process that tells it."""
    for family in text_string_to_metric_families(metrics):
        samples: list[Any] = family.samples if family.name.startswith(OURS) else []
        for sample in samples:
            labels = dict(sample.labels)
            started = float(labels.pop("started", 0.0))
            yield started, Row(sample.name, labels.pop("stage", ""), labels, sample.value)
