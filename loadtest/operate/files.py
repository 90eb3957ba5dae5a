"""What operators load into Prometheus and Grafana, by Prometheus's own judgement."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any, Final

import yaml  # type: ignore[import-untyped]
from rich.progress import Progress

from deploy.observe import dashboard
from loadtest.engine.figures import Found
from loadtest.operate import tools
from loadtest.operate.cases import OBSERVE, TARGET
from loadtest.operate.record import filled
from loadtest.seed.figures import Target, at_most

TARGETS: Final[dict[str, Target]] = {
    "rules_faults": at_most(0),
    "alert_cases_faults": at_most(0),
    "dashboard_faults": at_most(0),
}


def files(folder: Path, rounds: int, progress: Progress) -> Found:
    """How many of the rules, of the alerts' cases and of the dashboard's queries are refused."""
    folder.mkdir(parents=True, exist_ok=True)
    checks: dict[str, Callable[[], object]] = {
        "rules_faults": check_rules,
        "alert_cases_faults": check_cases,
        "dashboard_faults": lambda: check_dashboard(folder),
    }
    task = progress.add_task("files", total=len(checks), told="files")
    told = {}
    for name, check in checks.items():
        told[name] = _fault(check)
        progress.advance(task)
    return Found({name: float(bool(fault)) for name, fault in told.items()}, {"told": told})


def check_rules() -> None:
    """Rules, alerts and configuration; CalledProcessError where Prometheus refuses one."""
    tools.promtool_says("check", "rules", OBSERVE / "rules.yaml", OBSERVE / "alerts.yaml")
    tools.promtool_says("check", "config", OBSERVE / "prometheus.yaml")


def check_cases() -> None:
    """Every alert fires in its case and in no other; CalledProcessError where one does not."""
    tools.promtool_says("test", "rules", TARGET)


def check_dashboard(folder: Path) -> int:
    """Every query of the dashboard, as a rule in a file in `folder`; how many there are.
    CalledProcessError where Prometheus cannot read one."""
    rules = [
        {"record": f"query:{number}", "expr": filled(expression)}
        for number, expression in enumerate(queries(dashboard.dashboard()))
    ]
    file = folder / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    tools.promtool_says("check", "rules", file)
    return len(rules)


def queries(board: dict[str, Any]) -> list[str]:
    """What the panels of a dashboard ask."""
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def _fault(check: Callable[[], object]) -> str:
    """What is wrong, or nothing."""
    try:
        check()
    except CalledProcessError as fault:
        return "\n".join([str(fault), *fault.__notes__])
    return ""
