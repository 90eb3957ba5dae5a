"""What benches of operating make of what they saw."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tritonclient.utils import serialize_byte_tensor

from client.pulse import Pulse
from deploy.__main__ import main
from loadtest.chaos.caller import Told
from loadtest.operate.alerts import FAULTS, HEALTHY, TARGETS, figures
from loadtest.operate.cases import OBSERVE
from loadtest.operate.prometheus import shortened
from loadtest.operate.traces import faults
from python_backends.log_format import LOG_FORMAT
from python_backends.tracing.door_turn import DoorTurn
from python_backends.tracing.turns import to_spans

RULE = """
groups:
  - name: g
    interval: 15s
    rules:
      - {alert: A, expr: "rate(x[5m]) > 0 and y offset 10m > 0 or z[30s]", for: 2m}
"""


def test_times_of_rules_are_divided_and_no_range_is_too_short() -> None:
    (group,) = yaml.safe_load(shortened(RULE, 40))["groups"]
    (rule,) = group["rules"]
    assert group["interval"] == "1s"
    assert rule["expr"] == "rate(x[8s]) > 0 and y offset 15s > 0 or z[5s]"
    assert rule["for"] == "5s"
    assert shortened(RULE, 1) == RULE


def test_every_alert_is_asked_of_a_fault() -> None:
    told = yaml.safe_load((OBSERVE / "alerts.yaml").read_text())
    known = [rule["alert"] for group in told["groups"] for rule in group["rules"]]
    asked = {name for fault in FAULTS for name in fault.fires}
    assert sorted(asked) == sorted(known)


def test_an_alert_that_is_missing_or_too_much_is_counted() -> None:
    told = {
        HEALTHY.name: {"asked": [], "fired": []},
        "a": {"asked": ["A"], "fired": ["A"]},
        "b": {"asked": ["B", "C"], "fired": ["B", "D"]},
    }
    found = figures(told)
    assert found["alerts_fired_on_their_fault"] == 0.5
    assert found["alerts_fired_on_others"] == 1
    assert found["alerts_fired_when_healthy"] == 0
    met = {name: target.met(found[name] or 0.0) for name, target in TARGETS.items()}
    assert list(met.values()) == [False, False, True]


def entry(stage: str, start_ns: int) -> bytes:
    told = {"stage": stage, "turn": "t~1", "piece": 0, "what": "compute", "start_ns": start_ns}
    return json.dumps({**told, "end_ns": start_ns + 5}).encode()


EVENTS = (entry("think", 10), entry("speak", 20))


def told() -> Told:
    raw = serialize_byte_tensor(np.array(EVENTS, object)).item()
    return Told("t", 1, Pulse("t", 0.0), all_events=[raw, raw])


def received() -> list[Span]:
    turn = DoorTurn("t", "", 5, 40, first_ns=25, failure="", events=EVENTS)
    request = encode_spans(to_spans(turn, 0))
    scopes = [scope for group in request.resource_spans for scope in group.scope_spans]
    return [span for scope in scopes for span in scope.spans]


def test_a_trace_that_is_whole_has_no_fault() -> None:
    assert faults([told()], received()) == []


def test_a_trace_that_is_not_says_what_it_lacks() -> None:
    root, think, speak = received()
    assert faults([told()], [root, think]) == [
        "t: 1 spans, not the 2 of EVENTS",
        "t: attributes do not tell the stages",
    ]
    assert faults([told()], [think, speak]) == ["2 spans without a root", "t: 0 roots"]
    think.parent_span_id = b"elsewher"
    assert faults([told()], [root, think, speak]) == ["t: think compute has another parent"]
    think.parent_span_id = root.span_id
    speak.end_time_unix_nano += 1
    assert faults([told()], [root, think, speak]) == ["t: 2 spans, not the 2 of EVENTS"]


def test_a_format_of_the_log_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv(LOG_FORMAT, "xml")
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path), "serve"])
    assert "'xml' is no format of the log" in capsys.readouterr().err
