"""Unit tests of the alerts for promtool: what /metrics would tell of each fault, and of none.

`python -m loadtest.operate.cases` writes `deploy/observe/alerts.test.yaml`. Each case is a
deployment of one server whose door is `turn`, whose engines are `think` and `speak`, or of one more
behind it; a fault changes some of its series and nothing else, so that every other alert is held to
be silent.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

OBSERVE: Final = Path(__file__).parents[2] / "deploy" / "observe"
TARGET: Final = OBSERVE / "alerts.test.yaml"
JOB, SERVER, STARTED = "tristage", "voice-1:8002", "1700000000.000"
BEHIND: Final = "think-1:8002"
"""Another server, of think alone: there the door of SERVER knows only its own proxy of it."""

PERIOD_S: Final = 15
LENGTH: Final = 360
"""Samples of each series: an hour and a half."""

Series = dict[str, str]
"""A series in PromQL -> its values as promtool writes them."""


@dataclass(frozen=True)
class Case:
    """`changed` replaces or adds series of the healthy server; each of `fires` is an alert, the
    labels beside `job` and `severity` that it must bear (an empty one it must not), and the value
    that it tells of. At `at` all others are silent."""

    name: str
    changed: Series
    fires: Sequence[tuple[str, Mapping[str, str], str]] = ()
    at: str = "40m"


def series(name: str, stage: str, *, started: str = STARTED, **labels: str) -> str:
    """One row of /metrics as Prometheus keeps it."""
    told = {"job": JOB, "instance": SERVER, "stage": stage, "started": started, **labels}
    inside = ",".join(f'{key}="{value}"' for key, value in sorted(told.items()))
    return f"tristage_{name}{{{inside}}}"


def counting(per_s: float, start: float = 0) -> str:
    """A counter that goes up so fast."""
    return f"{start:g}+{per_s * PERIOD_S:g}x{LENGTH}"


def steady(value: float) -> str:
    """A gauge that stays."""
    return f"{value:g}x{LENGTH}"


def durations(name: str, stage: str, per_s: float, seconds: float) -> Series:
    """A histogram of which everything lies in one bucket, the least of `BOUNDS` that holds it."""
    found = {
        series(f"{name}_sum", stage): counting(per_s * seconds),
        series(f"{name}_count", stage): counting(per_s),
    }
    for bound in BOUNDS:
        inside = per_s if seconds <= bound else 0
        found[series(f"{name}_bucket", stage, le=f"{bound:g}")] = counting(inside)
    found[series(f"{name}_bucket", stage, le="+Inf")] = counting(per_s)
    return found


BOUNDS: Final = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
TURNS_PER_S, STEPS_PER_S = 10.0, 100.0
_VALUE: Final = re.compile(r"{{ \$value[^}]*}}")


def engine(stage: str, *, busy: float, queue_s: float) -> Series:
    """An engine's steps take `busy` of the time, and its requests wait `queue_s`."""
    return {
        series("steps_total", stage): counting(STEPS_PER_S),
        **durations("step_seconds", stage, 20, busy / STEPS_PER_S),
        **durations("gap_seconds", stage, 20, (1 - busy) / STEPS_PER_S),
        **durations("queue_seconds", stage, TURNS_PER_S, queue_s),
    }


def healthy() -> Series:
    """Ten turns a second, no queue."""
    found: Series = {f'up{{instance="{SERVER}",job="{JOB}"}}': steady(1)}
    for stage in ("turn", "think", "speak"):
        found |= {
            series("heartbeats_total", stage): counting(2),
            series("server_started", stage): steady(1234.5),
            series("open_requests", stage): steady(5),
            series("requests_total", stage, outcome="ok"): counting(TURNS_PER_S),
            series("slots", stage, state="running"): steady(5),
            series("slots", stage, state="waiting"): steady(0),
            series("stage_bytes", stage, part="requests", kind="declared"): steady(1000),
            series("stage_bytes", stage, part="requests", kind="used"): steady(300),
        }
    for stage in ("think", "speak"):
        found |= engine(stage, busy=0.3, queue_s=0.01)
        found[series("stage_up", "turn", of=stage)] = steady(1)
        found[series("restarts_total", "turn", of=stage)] = steady(0)
    found |= durations("queue_seconds", "turn", TURNS_PER_S, 0.001)
    found |= durations("first_chunk_seconds", "turn", TURNS_PER_S, 0.4)
    found |= durations("first_chunk_seconds", "think", TURNS_PER_S, 0.1)
    return found


def failing(share: float, outcome: str = "STAGE_FAILED") -> Series:
    """So many of the turns end with an error."""
    return {
        series("requests_total", "turn", outcome="ok"): counting(TURNS_PER_S * (1 - share)),
        series("requests_total", "turn", outcome=outcome): counting(TURNS_PER_S * share),
    }


def still(name: str, value: float, stage: str = "turn", **labels: str) -> Series:
    """What a killed process has left behind in /metrics."""
    old = "1600000000.000"
    return {
        series("heartbeats_total", stage, started=old): steady(900),
        series(name, stage, started=old, **labels): steady(value),
    }


def killed(born: int, at: int) -> str:
    """Heartbeats of a process that was there from one sample to another; its row stays."""
    before, beats = f"_x{born} " if born else "", 30 * (at - born)
    return f"{before}1+30x{at - born} {1 + beats}x{LENGTH}"


def left(born: int, at: int) -> str:
    """Of one that ended in order: its row goes with it."""
    before = f"_x{born} " if born else ""
    return f"{before}1+30x{at - born} stale"


def beating(born: int) -> str:
    """Of one that is there from a sample on."""
    return f"_x{born} 1+30x{LENGTH}"


def behind(*lives: str, up: str = f"1x{LENGTH}") -> Series:
    """The server behind, and the heartbeats of its processes of think, one after another."""
    return {f'up{{instance="{BEHIND}",job="{JOB}"}}': up} | {
        series("heartbeats_total", "think", started=f"17{number:08}.000", instance=BEHIND): life
        for number, life in enumerate(lives)
    }


def both(share: str) -> list[tuple[str, Mapping[str, str], str]]:
    """Burnt fast is burnt slowly, too."""
    return [("TurnErrorsFast", {}, share), ("TurnErrorsSlow", {}, share)]


HERE: Final = {"instance": SERVER}
CASES: Final = (
    Case("all is well", {}),
    Case(
        "callers leave and ask wrongly", failing(0.5, "CANCELLED") | failing(0.5, "INVALID_INPUT")
    ),
    Case("few turns fail", failing(0.005)),
    Case(
        "a queue, and a device that is busy",
        engine("think", busy=0.65, queue_s=0.7),
        [("ComputeBound", HERE, "95%")],
    ),
    Case("busy, but nobody waits", engine("think", busy=0.65, queue_s=0.02)),
    Case(
        "a queue at the door, and engines that stand still",
        durations("queue_seconds", "turn", TURNS_PER_S, 1.2),
        [("ScheduleBound", {}, "1.2s")],
    ),
    Case(
        "late without a queue",
        durations("first_chunk_seconds", "turn", TURNS_PER_S, 4.0),
        [("FirstAudioLate", {}, "4.85s")],
    ),
    Case(
        "late because of a queue",
        durations("first_chunk_seconds", "turn", TURNS_PER_S, 4.0)
        | durations("queue_seconds", "turn", TURNS_PER_S, 3.0),
        [("ScheduleBound", {}, "3s")],
    ),
    Case(
        "requests stay and none ends",
        {
            series("open_requests", "speak"): f"0x40 3x{LENGTH}",
            series("requests_total", "speak", outcome="ok"): f"0+150x40 6000x{LENGTH}",
        },
        [("LeakedRequests", {**HERE, "stage": "speak"}, "3")],
    ),
    Case(
        "a stage is gone, as the door says",
        {series("stage_up", "turn", of="speak"): f"1x60 0x{LENGTH}"},
        [("StageDead", {**HERE, "stage": "speak"}, "0")],
    ),
    Case(
        "a stage is away for one scrape",
        {series("stage_up", "turn", of="speak"): f"1x158 0 1x{LENGTH}"},
    ),
    Case(
        "a stage is gone in a server behind, whose proxy is up",
        behind(killed(0, 100)),
        [("StageDead", {"instance": BEHIND, "stage": "think"}, "0")],
    ),
    Case(
        "the door is gone, and nobody tells of it",
        {
            series("heartbeats_total", "turn"): killed(0, 100),
            series("requests_total", "turn", outcome="ok"): f"0+150x100 15000x{LENGTH}",
        },
        [("StageDead", {**HERE, "stage": "turn"}, "0")],
    ),
    Case(
        "doors and stages that were killed have left rows behind",
        still("stage_up", 0, of="speak")
        | still("open_requests", 9)
        | still("open_requests", 9, "think")
        | behind(killed(0, 60), beating(62)),
    ),
    Case(
        "an upgrade: another version came, the name was loaded again, and both of before have gone",
        behind(left(0, 140), left(110, 152), beating(138)),
        at="39m",
    ),
    Case("an upgrade whose process died on trial", behind(f"0+30x{LENGTH}", killed(120, 130))),
    Case("a replica was taken away", behind(left(0, 145), up="1x145 stale")),
    Case("a replica came", behind(beating(158), up=f"_x158 1x{LENGTH}")),
    Case(
        "a stage ends again and again in a server behind, and one process was seen once",
        behind(
            killed(0, 108), killed(110, 118), f"_x121 9x{LENGTH}", killed(123, 150), beating(151)
        ),
        [("StageRestarts", {"instance": BEHIND, "stage": "think"}, "4")],
    ),
    Case("a stage ended twice", behind(killed(0, 130), killed(131, 140), beating(141))),
    Case(
        "a stage ended again and again before there was anybody to see it",
        behind(*(f"{beats}x{LENGTH}" for beats in (9, 90, 20, 60)), f"9+30x{LENGTH}"),
        at="5m",
    ),
    Case(
        "the server was started again",
        {
            series("server_started", stage, started="1700001950.000"): f"_x130 3184.5x{LENGTH}"
            for stage in ("turn", "think", "speak")
        }
        | {
            series("server_started", stage): "1234.5x130 stale"
            for stage in ("turn", "think", "speak")
        },
        [("ServerRestarted", HERE, "1")],
    ),
    Case(
        "the server does not answer",
        {f'up{{instance="{SERVER}",job="{JOB}"}}': f"1x120 0x{LENGTH}"},
        [("ServerDown", HERE, "0")],
    ),
    Case(
        "there are no servers",
        {name: f"{values.split()[0].split('x')[0]}x60 stale" for name, values in healthy().items()},
        [("NoServers", {"job": ""}, "1")],
    ),
    Case(
        "bytes are nearly all taken, and a process that was killed might have taken more",
        {series("stage_bytes", "think", part="requests", kind="used"): steady(980)}
        | still("stage_bytes", 9000, "think", part="requests", kind="declared"),
        [("BytesNearBudget", {**HERE, "stage": "think", "part": "requests"}, "98%")],
    ),
    Case(
        "bytes are nearly all taken",
        {series("stage_bytes", "think", part="requests", kind="used"): steady(980)},
        [("BytesNearBudget", {**HERE, "stage": "think", "part": "requests"}, "98%")],
    ),
    Case("a fifth of the turns fail", failing(0.2), both("20%")),
    Case(
        "a fifth is refused",
        failing(0.2, "OVERLOADED"),
        both("20%"),
    ),
    Case("one of ten turns fails", failing(0.1), [("TurnErrorsSlow", {}, "10%")]),
    Case(
        "a fifth failed, and none does any more",
        {
            series("requests_total", "turn", outcome="ok"): f"0+120x60 7200+150x{LENGTH}",
            series("requests_total", "turn", outcome="STAGE_FAILED"): f"0+30x60 1800x{LENGTH}",
        },
        at="55m",
    ),
)


def document() -> dict[str, Any]:
    """The whole file, as promtool reads it."""
    alerts = {rule["alert"]: rule for rule in _alerts()}
    return {
        "rule_files": ["rules.yaml", "alerts.yaml"],
        "evaluation_interval": f"{PERIOD_S}s",
        "tests": [_test(case, alerts) for case in CASES],
    }


def text() -> str:
    """The file."""
    head = "# Written by `python -m loadtest.operate.cases`; promtool test rules alerts.test.yaml\n"
    return head + str(yaml.safe_dump(document(), sort_keys=False, width=10_000))


def _alerts() -> list[dict[str, Any]]:
    told = yaml.safe_load((OBSERVE / "alerts.yaml").read_text())
    return [rule for group in told["groups"] for rule in group["rules"]]


def _test(case: Case, alerts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    rows = healthy() | case.changed
    return {
        "name": case.name,
        "interval": f"{PERIOD_S}s",
        "input_series": [_row(*item) for item in rows.items()],
        "alert_rule_test": [
            {"eval_time": case.at, "alertname": name, "exp_alerts": _expected(case, name, alert)}
            for name, alert in alerts.items()
        ],
    }


def _expected(case: Case, name: str, alert: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "exp_labels": {
                label: told
                for label, told in {"job": JOB, **labels, **alert["labels"]}.items()
                if told
            },
            "exp_annotations": {
                key: _filled(words, labels, value) for key, words in alert["annotations"].items()
            },
        }
        for fired, labels, value in case.fires
        if fired == name
    ]


def _filled(words: str, labels: Mapping[str, str], value: str) -> str:
    """What Prometheus makes of an annotation."""
    for label, told in labels.items():
        words = words.replace(f"{{{{ $labels.{label} }}}}", told)
    return _VALUE.sub(value, words)


@cache
def _row(series: str, values: str) -> dict[str, str]:
    """One object for equal rows: YAML then refers to it."""
    return {"series": series, "values": values}


if __name__ == "__main__":
    TARGET.write_text(text())
