"""Rules and alerts, by Prometheus's own judgement."""

import re
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest
import yaml
from rich.progress import Progress

from loadtest.operate import cases, files, tools
from loadtest.operate.cases import CASES, OBSERVE

ANCHORS = {
    "slow-at-64",
    "first-audio-late",
    "audio-gaps",
    "oom",
    "refused",
    "stage-dead",
    "leak",
}
RUNBOOK = OBSERVE.parents[1] / "docs" / "runbook.md"
ALERTS = [
    rule
    for group in yaml.safe_load((OBSERVE / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]


def test_prometheus_takes_all_files_and_every_alert_fires_on_its_fault_alone(
    tmp_path: Path,
) -> None:
    found = files.files(tmp_path, 1, Progress(disable=True))
    assert found.detail["told"] == dict.fromkeys(files.TARGETS, "")
    assert found.figures == dict.fromkeys(files.TARGETS, 0)


def test_what_prometheus_refuses_is_a_fault_with_its_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "rules.yaml").write_text("groups: [{name: one, rules: [{record: a, expr: (}]}]")
    (tmp_path / "alerts.yaml").write_text("groups: []")
    monkeypatch.setattr(files, "OBSERVE", tmp_path)
    found = files.files(tmp_path, 1, Progress(disable=True))
    assert found.figures["rules_faults"] == 1
    assert "rules.yaml" in found.detail["told"]["rules_faults"]
    assert found.figures["dashboard_faults"] == 0


def test_the_file_of_cases_is_what_they_say() -> None:
    assert cases.TARGET.read_text() == cases.text()


def test_every_alert_has_a_case_that_it_fires_in() -> None:
    fired = {name for case in CASES for name, _, _ in case.fires}
    assert fired == {rule["alert"] for rule in ALERTS}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    told = rule["annotations"]
    assert told.keys() == {"summary", "action", "runbook_url"}
    page, _, anchor = told["runbook_url"].partition("#")
    assert page == "docs/runbook.md"
    assert anchor in ANCHORS
    section = RUNBOOK.read_text().partition(f"\n## {anchor}\n")[2].partition("\n## ")[0]
    assert f"`{rule['alert']}`" in section
    assert rule["labels"]["severity"] in {"page", "ticket"}


def test_a_case_that_expects_what_is_not_so_fails(tmp_path: Path) -> None:
    for name in ("rules.yaml", "alerts.yaml"):
        (tmp_path / name).write_text((OBSERVE / name).read_text())
    document = cases.document()
    document["tests"] = [
        one for one in document["tests"] if one["name"] == "a stage is gone, as the door says"
    ]
    for one in document["tests"][0]["alert_rule_test"]:
        one["exp_alerts"] = []
    (tmp_path / "wrong.test.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(CalledProcessError) as told:
        tools.promtool_says("test", "rules", tmp_path / "wrong.test.yaml")
    assert re.search('got:.*"StageDead"', told.value.__notes__[0], re.DOTALL)


def test_a_program_that_cannot_be_had_names_what_brings_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRISTAGE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tools.ToolMissing, match="apt-get install prometheus"):
        tools.promtool()
