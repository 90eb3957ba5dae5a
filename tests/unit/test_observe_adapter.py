"""What prometheus-adapter asks for an autoscaler, by Prometheus's own arithmetic."""

from pathlib import Path
from typing import Any

import yaml

from deploy.kubernetes.around import BUSY, WAITED, adapter_rules
from loadtest.operate import tools

KILLED, ALIVE = "1700000000.000", "1700000500.000"
SAMPLES = 60
"""One every 10 s."""

QUERIES = {
    rule["name"]["as"]: rule["metricsQuery"]
    .replace("<<.LabelMatchers>>", 'namespace="voice",pod=~"think-1|think-2"')
    .replace("<<.GroupBy>>", "pod")
    for rule in adapter_rules()["rules"]["custom"]
}
"""As the adapter fills them in for two pods."""


def row(name: str, pod: str, started: str, values: str, **more: str) -> dict[str, str]:
    labels = {
        "namespace": "voice",
        "pod": pod,
        "instance": f"{pod}:8002",
        "stage": "think",
        "started": started,
        **more,
    }
    told = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return {"series": f"tristage_{name}{{{told}}}", "values": values}


def process(
    pod: str, started: str, running: int, free: int, *, beats: str = f"0+20x{SAMPLES}"
) -> list[dict[str, str]]:
    return [
        row("heartbeats_total", pod, started, beats),
        row("slots", pod, started, f"{running}x{SAMPLES}", state="running"),
        row("slots", pod, started, f"{free}x{SAMPLES}", state="free"),
        row("slots", pod, started, f"3x{SAMPLES}", state="waiting"),
    ]


def told(name: str, series: list[dict[str, str]], folder: Path, **of_pods: float) -> None:
    """The query tells these values, and nothing else, or CalledProcessError."""
    samples: list[dict[str, Any]] = [
        {"labels": f'{{pod="{pod.replace("_", "-")}"}}', "value": value}
        for pod, value in of_pods.items()
    ]
    asked = {"expr": QUERIES[name], "eval_time": "9m", "exp_samples": samples}
    test = {"interval": "10s", "input_series": series, "promql_expr_test": [asked]}
    file = folder / "adapter.test.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "10s", "tests": [test]}))
    tools.promtool_says("test", "rules", file)


def test_places_of_a_process_that_was_killed_are_no_pods(tmp_path: Path) -> None:
    """Neither its taken ones, by which a pod would never be idle, nor its free ones, by which it
    would never be full."""
    still = f"900x{SAMPLES}"
    for running, free in ((4, 0), (0, 4)):
        series = [
            *process("think-1", KILLED, running, free, beats=still),
            *process("think-1", ALIVE, 3, 1),
            *process("think-2", ALIVE, 1, 3),
        ]
        told(BUSY, series, tmp_path, think_1=0.75, think_2=0.25)


def test_a_pod_is_as_busy_as_its_fullest_stage(tmp_path: Path) -> None:
    other = [
        {**one, "series": one["series"].replace('stage="think"', 'stage="speak"')}
        for one in process("think-1", ALIVE, 4, 0)
    ]
    told(BUSY, [*other, *process("think-1", ALIVE, 1, 3)], tmp_path, think_1=1.0)


def test_a_pod_waits_as_long_as_those_whom_its_living_process_lets_wait(tmp_path: Path) -> None:
    def waits(pod: str, started: str, sums: str, counts: str) -> list[dict[str, str]]:
        return [
            row("queue_seconds_sum", pod, started, sums),
            row("queue_seconds_count", pod, started, counts),
        ]

    series = [
        *waits("think-1", KILLED, f"700x{SAMPLES}", f"10x{SAMPLES}"),
        *waits("think-1", ALIVE, f"0+6x{SAMPLES}", f"0+20x{SAMPLES}"),
        *waits("think-2", ALIVE, f"5x{SAMPLES}", f"90x{SAMPLES}"),
    ]
    told(WAITED, series, tmp_path, think_1=0.3, think_2=0)
