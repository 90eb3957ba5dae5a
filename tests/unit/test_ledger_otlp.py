"""`explain` leaves traces that any viewer of OpenTelemetry reads, and draws what was remote."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from loadtest.ledger import otlp
from loadtest.ledger.explanation import Explanation
from loadtest.ledger.report import explain
from loadtest.ledger.timelines import waterfall_figure
from tests.unit.ledger_simulator import simulate
from tests.unit.ledger_world import MS, Knobs
from tests.unit.test_client_trace import parsed, spans_in

CALLERS = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run")
    simulate(Knobs(people=24, seconds=8.0), made)
    first = json.loads((made / "turns.jsonl").read_text().splitlines()[0])["turn"]
    _change_turns(made, {first: {"traceparent": CALLERS}})
    explain(made, console=Console(file=StringIO()))
    return made


def _change_turns(folder: Path, changes: dict[str, dict[str, Any]]) -> None:
    path = folder / "turns.jsonl"
    turns = [json.loads(line) for line in path.read_text().splitlines()]
    lines = (json.dumps(turn | changes.get(turn["turn"], {})) + "\n" for turn in turns)
    path.write_text("".join(lines))


def traces(folder: Path) -> list[dict[str, Any]]:
    return spans_in(json.loads((folder / "otlp.json").read_text()))


def test_the_slowest_turns_and_the_one_of_the_waterfall_are_traced(folder: Path) -> None:
    told = Explanation.of(folder)
    latencies = sorted(turn.end_ns - turn.intended_ns for turn in told.run.answered)
    assert len(latencies) > otlp.SLOWEST + 1
    chosen = otlp.chosen(told)
    assert told.requests.slow() in chosen
    assert otlp.SLOWEST <= len(chosen) <= otlp.SLOWEST + 1
    slowest = [turn.end_ns - turn.intended_ns for turn in chosen[: otlp.SLOWEST]]
    assert slowest == latencies[: -otlp.SLOWEST - 1 : -1]
    roots = [span for span in traces(folder) if span["name"] == "turn"]
    assert len(roots) == len({root["traceId"] for root in roots}) == len(chosen)


def test_every_span_has_an_id_of_its_own_a_parent_and_lies_within_it(folder: Path) -> None:
    spans = traces(folder)
    assert len({(span["traceId"], span["spanId"]) for span in spans}) == len(spans)
    roots = {span["spanId"]: span for span in spans if span["name"] == "turn"}
    children = [span for span in spans if span["name"] != "turn"]
    assert len(children) > len(roots)
    for child in children:
        root = roots[child["parentSpanId"]]
        assert child["traceId"] == root["traceId"]
        assert int(root["startTimeUnixNano"]) <= int(child["startTimeUnixNano"])
        assert int(child["endTimeUnixNano"]) <= int(root["endTimeUnixNano"])


def test_protobuf_reads_it_and_a_second_explanation_writes_the_same(folder: Path) -> None:
    text = (folder / "otlp.json").read_text()
    assert parsed(text).resource_spans
    assert otlp.traces(Explanation.of(folder)) == text


def test_the_run_is_placed_where_its_file_was_last_written(folder: Path) -> None:
    told = Explanation.of(folder)
    last_ns = otlp.unix_offset_ns(told.run) + told.run.ended_ns
    assert last_ns == (folder / "turns.jsonl").stat().st_mtime_ns


def test_a_turn_keeps_the_trace_it_was_sent_with_and_others_get_theirs_from_their_id(
    folder: Path,
) -> None:
    first, second, third, *_ = Explanation.of(folder).run.turns
    assert otlp.traced(first).traceparent == CALLERS
    assert otlp.traced(second) == otlp.traced(second)
    assert otlp.traced(second).traceparent != otlp.traced(third).traceparent


def test_a_run_without_an_answer_leaves_an_empty_request(tmp_path: Path) -> None:
    simulate(Knobs(people=1), tmp_path)
    (tmp_path / "turns.jsonl").write_text("")
    assert json.loads(otlp.traces(Explanation.of(tmp_path))) == {"resourceSpans": []}


def test_the_waterfall_frames_what_was_asked_of_another_server(folder: Path) -> None:
    told = Explanation.of(folder)
    shown = told.requests.slow()
    assert shown is not None
    assert "asked of another server" not in _legend(told)
    frames = len(waterfall_figure(told).axes[0].collections)
    path = folder / "turns.jsonl"
    before = path.read_text()
    events = next(json.loads(x)["events"] for x in before.splitlines() if shown.turn in x)
    thought = [event for event in events if event["stage"] == "think"]
    start_ns = min(event["start_ns"] for event in thought) - MS
    ends_ns = [event["end_ns"] + MS for event in thought]
    wraps = [
        thought[0] | {"what": "remote", "start_ns": start_ns, "end_ns": end} for end in ends_ns
    ]
    _change_turns(folder, {shown.turn: {"events": [*events, *wraps]}})
    remote = Explanation.of(folder)
    assert "asked of another server" in _legend(remote)
    assert len(waterfall_figure(remote).axes[0].collections) == frames + 1
    assert remote.requests.mean_ms() == told.requests.mean_ms()
    path.write_text(before)


def _legend(told: Explanation) -> list[str]:
    legend = waterfall_figure(told).axes[0].get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]
