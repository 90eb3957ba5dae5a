"""What Prometheus scrapes of a cluster, and whether that is often enough for its rules."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.kubernetes.around import adapter_rules
from deploy.observe import dashboard
from loadtest.operate import tools
from loadtest.operate.cases import OBSERVE

UNITS = {"s": 1, "m": 60, "h": 3600}
LEAST_SCRAPES = 3
JOB = "tristage-pods"
META = "__meta_kubernetes_"


def job() -> dict[str, Any]:
    (found,) = yaml.safe_load((OBSERVE / "prometheus-kubernetes.yaml").read_text())[
        "scrape_configs"
    ]
    return dict(found)


def seconds(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1]]


def test_the_job_of_a_cluster_says_how_often_whatever_is_usual_there() -> None:
    fixed = yaml.safe_load((OBSERVE / "prometheus.yaml").read_text())["global"]
    assert seconds(job()["scrape_interval"]) == seconds(fixed["scrape_interval"])
    assert seconds(job()["scrape_timeout"]) < seconds(job()["scrape_interval"])


@pytest.mark.parametrize(
    "text",
    [
        *((OBSERVE / name).read_text() for name in ("rules.yaml", "alerts.yaml")),
        json.dumps(adapter_rules()),
        dashboard.text(),
    ],
    ids=["rules", "alerts", "adapter", "dashboard"],
)
def test_a_range_holds_three_scrapes_at_least(text: str) -> None:
    ranges = {seconds(one) for one in re.findall(r"\[(\d+[smh])\]", text)}
    assert ranges
    assert min(ranges) >= LEAST_SCRAPES * seconds(job()["scrape_interval"])


def test_of_a_clusters_pods_those_of_ours_that_run_are_scraped(tmp_path: Path) -> None:
    """What kubernetes_sd_configs would find is written down in its place."""
    ours = {
        "pod_label_app_kubernetes_io_name": "tristage",
        "pod_container_port_name": "metrics",
        "pod_phase": "Running",
        "namespace": "shop",
        "pod_name": "tristage-think-1",
    }
    pods = {
        "10.0.0.1:8002": ours,
        "10.0.0.1:8001": ours | {"pod_container_port_name": "grpc"},
        "10.0.0.2:8002": ours | {"pod_phase": "Failed"},
        "10.0.0.3:8002": ours | {"pod_phase": "Succeeded"},
        "10.0.0.4:8002": ours | {"pod_label_app_kubernetes_io_name": "other"},
        "10.0.0.5:8002": ours | {"pod_phase": "Pending", "pod_name": "tristage-think-2"},
    }
    listed = [
        {"targets": [address], "labels": {META + key: told for key, told in pod.items()}}
        for address, pod in pods.items()
    ]
    without = {key: told for key, told in job().items() if key != "kubernetes_sd_configs"}
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump({"scrape_configs": [without | {"static_configs": listed}]}))
    tools.promtool_says("check", "config", file)
    found = json.loads(tools.promtool_says("check", "service-discovery", "--timeout=1s", file, JOB))
    scraped = [one["labels"] for one in found if one["labels"]]
    assert {one["instance"] for one in scraped} == {"10.0.0.1:8002", "10.0.0.5:8002"}
    assert {one["job"] for one in scraped} == {"tristage-shop"}
    assert {one["pod"] for one in scraped} == {"tristage-think-1", "tristage-think-2"}
    assert {one["namespace"] for one in scraped} == {"shop"}
