"""The dashboard is sound, and a picture of it shows what was recorded."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from matplotlib.image import imread

from deploy.observe import dashboard
from loadtest.operate import picture
from loadtest.operate.files import check_dashboard, queries
from loadtest.operate.record import TARGET as RECORDED

TOLD = dashboard.dashboard()
PANELS: list[dict[str, Any]] = [panel for panel in TOLD["panels"] if panel["type"] != "row"]
QUERIES = queries(TOLD)
UNITS = {"ops", "s", "percentunit", "short"}
NOT_EMULATED = ("tristage:lock_seconds",)
"""Of stages that the recorded server does not have."""


def test_the_file_is_what_the_description_makes() -> None:
    assert dashboard.TARGET.read_text() == dashboard.text()
    assert TOLD["schemaVersion"] >= 39
    names = [one["name"] for one in TOLD["templating"]["list"]]
    assert names == ["datasource", "job", "stage"]


def test_panels_have_ids_of_their_own_and_lie_beside_each_other() -> None:
    assert len({panel["id"] for panel in TOLD["panels"]}) == len(TOLD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in TOLD["panels"]:
        place = panel["gridPos"]
        across = range(place["x"], place["x"] + place["w"])
        down = range(place["y"], place["y"] + place["h"])
        cells = set(itertools.product(across, down))
        assert across.stop <= dashboard.WIDTH
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_a_panel_has_a_title_a_unit_and_the_chosen_source(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["datasource"]["uid"] == "${datasource}"
    letters = [target["refId"] for target in panel["targets"]]
    assert letters == sorted(set(letters))
    for target in panel["targets"]:
        assert "$job" in target["expr"]
        assert target["legendFormat"]


def test_prometheus_reads_every_query(tmp_path: Path) -> None:
    assert check_dashboard(tmp_path) == len(QUERIES)


def test_every_recorded_metric_that_is_shown_is_one_of_the_rules() -> None:
    rules = yaml.safe_load((dashboard.TARGET.parent / "rules.yaml").read_text())
    known = {rule["record"] for group in rules["groups"] for rule in group["rules"]}
    shown = {name for query in QUERIES for name in re.findall(r"tristage:[\w:]+", query)}
    assert shown <= known


def test_every_query_found_something_in_the_run_that_was_recorded() -> None:
    answers = json.loads(RECORDED.read_text())["answers"]
    assert answers.keys() == set(QUERIES)
    empty = [query for query, series in answers.items() if not series]
    assert all(query.startswith(f"max by (stage) ({NOT_EMULATED[0]}") for query in empty), empty


def test_the_picture_shows_every_panel(tmp_path: Path) -> None:
    recorded, path = json.loads(RECORDED.read_text()), tmp_path / "dashboard.png"
    picture.draw(TOLD, recorded, path)
    pixels = imread(path)
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in TOLD["panels"])
    high, wide = pixels.shape[:2]
    assert path.stat().st_size < 300_000
    for panel in PANELS:
        place = panel["gridPos"]
        top = (picture.HEAD_IN + place["y"] * picture.UNIT_IN) * picture.DPI
        bottom = min(high, top + place["h"] * picture.UNIT_IN * picture.DPI)
        left = place["x"] / dashboard.WIDTH * wide
        right = (place["x"] + place["w"]) / dashboard.WIDTH * wide
        card = pixels[round(top) : round(bottom), round(left) : round(right), :3]
        saturation = card.max(2) - card.min(2)
        assert (saturation > 0.25).sum() > 100, f"nothing is drawn in {panel['title']}"
    assert rows * picture.UNIT_IN * picture.DPI < high


def test_values_are_shown_in_their_unit() -> None:
    shown = picture.shown
    assert [shown(0.0042, "s"), shown(2.5, "s"), shown(0.5, "percentunit"), shown(3, "short")] == [
        "4.2 ms",
        "2.5 s",
        "50 %",
        "3",
    ]
