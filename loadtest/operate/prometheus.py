"""A real Prometheus beside a server, for as long as a test or a bench runs."""

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from deploy.processes import LOCALHOST, free_ports
from loadtest.operate import tools
from loadtest.operate.cases import OBSERVE

JOB: Final = "tristage"
SCRAPE_S: Final = 1
START_S: Final = 20.0
LEAST_S: Final = 5
"""A rate over less has too few scrapes; what comes back within so long was away for a moment."""

_RANGE: Final = re.compile(r"\[(\d+)([smh])\]")
_OFFSET: Final = re.compile(r"(?<=offset )(\d+)([smh])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}


class PrometheusFailed(Exception):
    """It did not start, or did not answer a query."""


@dataclass(frozen=True)
class Prometheus:
    """One that runs; its data ends with it."""

    address: str
    targets: Path
    """Names what it scrapes; followed while it runs."""

    def forget_targets(self) -> None:
        """There is nothing to scrape any more."""
        _replace(self.targets, "[]")

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Every series of an instant query, as the HTTP API has them; ValueError for no PromQL."""
        return self._ask("query", {"query": expression})

    def query_range(
        self, expression: str, start_s: float, end_s: float, step_s: float
    ) -> list[dict[str, Any]]:
        """Every series between two moments of unix time."""
        asked = {"query": expression, "start": start_s, "end": end_s, "step": step_s}
        return self._ask("query_range", asked)

    def firing(self) -> set[str]:
        """Alerts that fire now."""
        return {one["metric"]["alertname"] for one in self.query('ALERTS{alertstate="firing"}')}

    def fired(self) -> set[str]:
        """Alerts that have fired since it began."""
        asked = 'count_over_time(ALERTS{alertstate="firing"}[1h])'
        return {one["metric"]["alertname"] for one in self.query(asked)}

    def _ask(self, what: str, asked: Mapping[str, object]) -> list[dict[str, Any]]:
        url = f"http://{self.address}/api/v1/{what}?{urllib.parse.urlencode(asked)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return list(json.load(answer)["data"]["result"])
        except urllib.error.HTTPError as fault:
            raise ValueError(f"{asked['query']}: {json.load(fault).get('error')}") from fault
        except OSError as fault:
            raise PrometheusFailed(f"Prometheus at {self.address} does not answer") from fault


@contextmanager
def scraping(metrics_address: str, folder: Path, factor: float = 1) -> Iterator[Prometheus]:
    """Scrapes a server every second under our rules, their times divided by `factor`; it keeps its
    data in `folder` and ends with the block."""
    shutil.rmtree(folder / "data", ignore_errors=True)  # what an earlier run saw is not this one's
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("rules.yaml", "alerts.yaml"):
        (folder / name).write_text(shortened((OBSERVE / name).read_text(), factor))
    targets = folder / "targets.json"
    _replace(targets, json.dumps([{"targets": [metrics_address]}]))
    (folder / "prometheus.yaml").write_text(_configuration())
    (port,) = free_ports(1)
    address = f"{LOCALHOST}:{port}"
    command = [
        str(tools.prometheus()),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    log = folder / "prometheus.log"
    with log.open("wb") as kept, subprocess.Popen(command, stdout=kept, stderr=kept) as process:
        try:
            _wait_until(lambda: _is_ready(address), "did not start", process, log)
            found = Prometheus(address, targets)
            _wait_until(lambda: bool(found.query("up")), "scraped nothing", process, log)
            yield found
        finally:
            process.terminate()


def shortened(text: str, factor: float) -> str:
    """A rule file whose ranges, offsets and `for`s are divided by `factor`, evaluated every second
    where that is not 1. Only offsets may be shorter than LEAST_S."""
    if factor == 1:
        return text

    def short(found: re.Match[str], least: float = 0) -> float:
        return max(least, round(int(found[1]) * _UNITS[found[2]] / factor))

    told = yaml.safe_load(text)
    for group in told["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            expression = _RANGE.sub(lambda one: f"[{short(one, LEAST_S):g}s]", rule["expr"])
            rule["expr"] = _OFFSET.sub(lambda one: f"{short(one):g}s", expression)
            if "for" in rule:
                rule["for"] = re.sub(
                    r"(\d+)([smh])", lambda one: f"{short(one, LEAST_S):g}s", rule["for"]
                )
    return str(yaml.safe_dump(told, sort_keys=False, width=10_000))


def _replace(path: Path, text: str) -> None:
    """Whoever follows the file sees all of it at once."""
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)


def _configuration() -> str:
    target = {"job_name": JOB, "file_sd_configs": [{"files": ["targets.json"]}]}
    return str(
        yaml.safe_dump(
            {
                "global": {
                    "scrape_interval": f"{SCRAPE_S}s",
                    "scrape_timeout": f"{SCRAPE_S}s",
                    "evaluation_interval": "1s",
                },
                "rule_files": ["rules.yaml", "alerts.yaml"],
                "scrape_configs": [target],
            }
        )
    )


def _wait_until(
    so: Callable[[], bool], failure: str, process: "subprocess.Popen[bytes]", log: Path
) -> None:
    """It looks for what to scrape every 5 s, so that its first scrape may come late."""
    deadline = time.monotonic() + START_S
    while not so():
        if process.poll() is not None or time.monotonic() > deadline:
            end = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
            raise PrometheusFailed(f"Prometheus {failure}:\n{end}")
        time.sleep(0.1)


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=1):
            return True
    except OSError:
        return False
