"""The Grafana dashboard, described: `python -m deploy.observe.dashboard` writes dashboard.json."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).with_name("dashboard.json")
SCHEMA: Final = 39
WIDTH: Final = 24
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
OF_JOB: Final = 'job=~"$job"'
OF_STAGE: Final = f'{OF_JOB},stage=~"$stage"'
LIVE: Final = f'{OF_JOB},state="running",stage=~".*live.*"'
DOOR: Final = "and on (job, instance, stage) count by (job, instance, stage) (tristage_stage_up)"


OUTCOMES: Final = {
    "ok": "#73bf69",
    "CANCELLED": "#8e9299",
    "INVALID_INPUT": "#5794f2",
    "OVERLOADED": "#ff9830",
    "DEADLINE_MISSED": "#f2cc0c",
    "STAGE_FAILED": "#f2495c",
}
"""How a turn ended -> its colour."""


@dataclass(frozen=True)
class Line:
    """A query, and how its series are called."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """A panel of `width` columns of 24; `unit` is Grafana's name of it. `kind`: "timeseries" or
    "stat". `limit` draws a line: what is asked."""

    title: str
    lines: Sequence[Line]
    unit: str
    width: int = 8
    kind: str = "timeseries"
    stacked: bool = False
    limit: float | None = None
    is_least: bool = False
    """Below the limit is bad, and not above it."""

    top: float | None = None
    about: str = ""
    height: int = 8


@dataclass(frozen=True)
class Row:
    """Panels beside each other, under a title."""

    title: str
    panels: Sequence[Panel]


def _door(name: str) -> str:
    return f"max by (job) ({name}{{{OF_JOB}}} {DOOR})"


ROWS: Final = (
    Row(
        "Service level",
        (
            Panel(
                "Turns answered",
                (Line(f'sum(tristage:turns:rate1m{{{OF_JOB},outcome="ok"}})', "turns/s"),),
                "ops",
                4,
                "stat",
                height=5,
            ),
            Panel(
                "First audio, p95",
                (Line(_door("tristage:first_chunk_seconds:p95_1m"), "p95"),),
                "s",
                4,
                "stat",
                limit=2.5,
                height=5,
            ),
            Panel(
                "Turns that fail, 1 h",
                (Line(f"max(tristage:turn_errors:share1h{{{OF_JOB}}})", "share"),),
                "percentunit",
                4,
                "stat",
                limit=0.01,
                height=5,
            ),
            Panel(
                "Error budget left of 6 h",
                (Line(f"1 - max(tristage:turn_errors:share6h{{{OF_JOB}}}) / 0.01", "left"),),
                "percentunit",
                4,
                "stat",
                height=5,
                limit=0,
                is_least=True,
                about="1 % of turns may fail. Below 0 more have.",
            ),
            Panel(
                "Open turns",
                (Line(f"sum(tristage:open_requests{{{OF_JOB}}} {DOOR})", "turns"),),
                "short",
                4,
                "stat",
                height=5,
            ),
            Panel(
                "Live calls",
                (
                    Line(
                        f"sum(tristage:slots{{{LIVE}}}) or vector(0)",
                        "calls",
                    ),
                ),
                "short",
                4,
                "stat",
                height=5,
            ),
            Panel(
                "Turns by how they ended",
                (Line(f"sum by (outcome) (tristage:turns:rate1m{{{OF_JOB}}})", "{{outcome}}"),),
                "ops",
                12,
                stacked=True,
            ),
            Panel(
                "First audio",
                (
                    Line(_door("tristage:first_chunk_seconds:p50_1m"), "p50"),
                    Line(_door("tristage:first_chunk_seconds:p95_1m"), "p95"),
                ),
                "s",
                12,
                limit=2.5,
                about="From a turn's arrival at the door to its first sound.",
            ),
        ),
    ),
    Row(
        "Where the time goes: which of the two diseases",
        (
            Panel(
                "Device: busy",
                (Line(f"tristage:device_busy:share1m{{{OF_JOB}}}", "{{instance}}"),),
                "percentunit",
                8,
                limit=0.8,
                top=1,
                about="While requests wait: above the line it is compute, below it orchestration.",
            ),
            Panel(
                "Stages: busy",
                (Line(f"sum by (stage) (tristage:busy:share1m{{{OF_STAGE}}})", "{{stage}}"),),
                "percentunit",
                8,
                stacked=True,
            ),
            Panel(
                "Engines: standing still between steps",
                (Line(f"max by (stage) (tristage:gap:share1m{{{OF_STAGE}}})", "{{stage}}"),),
                "percentunit",
                8,
            ),
            Panel(
                "Waiting before the first step",
                (
                    Line(
                        f"max by (stage) (tristage:queue_seconds:avg30s{{{OF_STAGE}}})", "{{stage}}"
                    ),
                ),
                "s",
                8,
                stacked=True,
                limit=0.25,
            ),
            Panel(
                "Waiting for companions, and for a locked batch",
                (
                    Line(
                        f"max by (stage) (tristage:window_seconds:avg1m{{{OF_STAGE}}})",
                        "window {{stage}}",
                    ),
                    Line(
                        f"max by (stage) (tristage:lock_seconds:avg1m{{{OF_STAGE}}})",
                        "lock {{stage}}",
                    ),
                ),
                "s",
                8,
                stacked=True,
            ),
            Panel(
                "Steps",
                (Line(f"max by (stage) (tristage:step_seconds:avg1m{{{OF_STAGE}}})", "{{stage}}"),),
                "s",
                8,
            ),
        ),
    ),
    Row(
        "Places, bytes, processes",
        (
            Panel(
                "Members that run",
                (
                    Line(
                        f'sum by (stage) (tristage:slots{{{OF_STAGE},state="running"}})',
                        "{{stage}}",
                    ),
                ),
                "short",
                8,
            ),
            Panel(
                "Members that wait",
                (
                    Line(
                        f'sum by (stage) (tristage:slots{{{OF_STAGE},state="waiting"}})',
                        "{{stage}}",
                    ),
                ),
                "short",
                8,
            ),
            Panel(
                "Open requests",
                (Line(f"sum by (stage) (tristage:open_requests{{{OF_STAGE}}})", "{{stage}}"),),
                "short",
                8,
                about="What stays while nothing is served is a leak.",
            ),
            Panel(
                "Bytes of their budget",
                (
                    Line(
                        f"max by (stage, part) (tristage:bytes_used:share{{{OF_STAGE}}})",
                        "{{stage}} {{part}}",
                    ),
                ),
                "percentunit",
                8,
                limit=0.95,
                top=1,
            ),
            Panel(
                "Stages that are up",
                (Line(f"min by (stage) (tristage:stage_up{{{OF_STAGE}}})", "{{stage}}"),),
                "short",
                8,
                top=1,
            ),
            Panel(
                "Processes that ended, servers that came back",
                (
                    Line(
                        f"sum by (stage) (tristage:ended{{{OF_STAGE}}}"
                        f" - min_over_time(tristage:ended{{{OF_STAGE}}}[15m]))",
                        "{{stage}}",
                    ),
                    Line(f"sum(changes(tristage:server_started{{{OF_JOB}}}[15m]))", "server"),
                ),
                "short",
                8,
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """What Grafana imports."""
    return {
        "uid": "tristage",
        "title": "Tristage",
        "description": "A spoken agent on Triton. Needs the recording rules of rules.yaml.",
        "tags": ["tristage"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": _variables()},
        "panels": _panels(),
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1) + "\n"


def _variables() -> list[dict[str, Any]]:
    def label(name: str, of: str) -> dict[str, Any]:
        query = f"label_values({of}, {name})"
        return {
            "name": name,
            "type": "query",
            "datasource": SOURCE,
            "definition": query,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }

    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    return [
        source,
        label("job", "tristage_heartbeats_total"),
        label("stage", "tristage_heartbeats_total"),
    ]


def _panels() -> list[dict[str, Any]]:
    """Numbered, and laid out from left to right, row by row."""
    found: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        head = {
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": place,
        }
        found.append({"id": len(found) + 1, **head})
        x, y, height = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            found.append({"id": len(found) + 1, **_panel(panel), "gridPos": place})
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return found


def _panel(panel: Panel) -> dict[str, Any]:
    good, bad = ("green", "red") if not panel.is_least else ("red", "green")
    steps: list[dict[str, Any]] = [{"color": good, "value": None}]
    if panel.limit is not None:
        steps.append({"color": bad, "value": panel.limit})
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.is_least:
        del defaults["min"]
    if panel.top is not None:
        defaults["max"] = panel.top
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "lineWidth": 2,
            "fillOpacity": 35 if panel.stacked else 8,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if panel.limit is not None else "off"},
        }
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": _colours(panel)},
        "options": _options(panel.kind),
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": line.expr,
                "legendFormat": line.legend,
            }
            for number, line in enumerate(panel.lines)
        ],
    }


def _colours(panel: Panel) -> list[dict[str, Any]]:
    """Series whose colour means something have it."""
    if not any("outcome" in line.legend for line in panel.lines):
        return []
    return [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for name, colour in OUTCOMES.items()
    ]


def _options(kind: str) -> dict[str, Any]:
    if kind == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"]},
            "colorMode": "value",
            "graphMode": "area",
        }
    return {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


if __name__ == "__main__":
    TARGET.write_text(text())
