"""What `explain` and `compare` say and write."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from loadtest.ledger.explanation import Explanation, seed_rows
from loadtest.ledger.report import compare, explain
from loadtest.ledger.request import Cause
from loadtest.ledger.run import Run
from loadtest.ledger.trace import sample
from tests.unit.ledger_simulator import simulate
from tests.unit.ledger_world import Knobs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run")
    simulate(Knobs(people=12, monolith=True, slots=8, gap=4.0, seconds=6.0), made)
    return made


@pytest.fixture(scope="module")
def said(folder: Path) -> str:
    output = StringIO()
    explain(folder, console=Console(file=output, width=160))
    return output.getvalue()


def test_the_terminal_shows_the_verdict_the_seeds_three_rows_and_that_it_is_emulated(
    said: str,
) -> None:
    assert "emulated device" in said
    assert "Verdict: schedule-bound, mostly by gaps between steps" in said
    for cause in (Cause.ENCODER, Cause.HOST_GAP, Cause.ADMISSION, Cause.UNEXPLAINED):
        assert cause in said


def test_the_page_is_self_contained_and_says_that_it_is_emulated(folder: Path, said: str) -> None:
    page = (folder / "report.html").read_text()
    assert "emulated device" in page
    assert page.count('src="data:image/png;base64,') == page.count("<img") == 4
    assert "http" not in page
    assert "schedule-bound, mostly by gaps between steps" in page


def test_figures_are_flat_and_agree_with_the_books(folder: Path, said: str) -> None:
    figures = json.loads((folder / "ledger.json").read_text())
    assert not any(isinstance(value, dict | list) for value in figures.values())
    told = Explanation.of(folder)
    assert figures["busy_share"] == told.busy_share
    idle = sum(value for name, value in figures.items() if name.startswith("idle/"))
    assert idle + figures["busy_share"] == pytest.approx(1.0)
    rows = [value for name, value in figures.items() if name.startswith("request/")]
    assert sum(rows[::2]) == pytest.approx(told.rulers.latency.mean)
    assert figures["emulated"] is True
    assert figures["device"] == "emulated device"


def test_the_seeds_table_is_taken_from_the_request_book(folder: Path) -> None:
    told = Explanation.of(folder)
    means = told.requests.mean_ms()
    assert [(cause, ms) for cause, ms, _ in seed_rows(told.requests)] == [
        (Cause.ENCODER, means[Cause.ENCODER]),
        (Cause.HOST_GAP, means[Cause.HOST_GAP]),
        (Cause.ADMISSION, means[Cause.ADMISSION]),
    ]


def test_the_trace_has_a_track_a_device_and_slices_that_cover_the_turns(
    folder: Path, said: str
) -> None:
    trace = json.loads((folder / "trace.json").read_text())
    assert "emulated" in trace["otherData"]["about"]
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    told = Explanation.of(folder)
    on_device = [event for event in slices if (event["pid"], event["tid"]) == (1, 0)]
    assert len(on_device) == len(told.run.passes)
    turns = {turn.turn: turn for turn in sample(told.run.answered)}
    for name, turn in turns.items():
        mine = sum(event["dur"] for event in slices if event["args"].get("turn") == name)
        assert mine == pytest.approx((turn.end_ns - turn.intended_ns) / 1000)


def test_a_sample_holds_the_fastest_and_the_slowest_turn(folder: Path) -> None:
    turns = Run.read(folder).answered
    ordered = sorted(turns, key=lambda turn: turn.end_ns - turn.intended_ns)
    chosen = sample(turns, 5)
    assert len(chosen) == 5
    assert ordered[0] in chosen
    assert ordered[-1] in chosen


def test_a_run_whose_generator_was_late_is_called_invalid_everywhere(tmp_path: Path) -> None:
    simulate(Knobs(people=1), tmp_path)
    facts = json.loads((tmp_path / "run.json").read_text())
    facts["generator"] = {"late_p99_ms": 80.0, "valid": False, "why": "80 ms late"}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    output = StringIO()
    explain(tmp_path, console=Console(file=output, width=160))
    assert "INVALID RUN: 80 ms late" in output.getvalue()
    assert "INVALID RUN: 80 ms late" in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "ledger.json").read_text())["valid"] is False


def test_runs_are_compared_on_one_page_a_line_a_series(tmp_path: Path) -> None:
    for people in (1, 8):
        simulate(Knobs(people=people), tmp_path / f"stages-{people}")
        knobs = Knobs(people=people, monolith=True, gap=4.0)
        simulate(knobs, tmp_path / f"monolith-{people}")
    page = compare(sorted(tmp_path.iterdir()))
    assert page.count("<img") == 2
    assert "emulated device" in page
    for name in ("stages-1", "stages-8", "monolith-1", "monolith-8"):
        assert name in page


def test_there_is_nothing_to_compare_without_runs() -> None:
    with pytest.raises(ValueError, match="no run"):
        compare([])


def test_a_run_without_a_single_answer_is_explained_all_the_same(tmp_path: Path) -> None:
    simulate(Knobs(people=1), tmp_path)
    (tmp_path / "turns.jsonl").write_text("")
    output = StringIO()
    told = explain(tmp_path, console=Console(file=output, width=160))
    assert told.rulers.answered == 0
    assert "no turn was answered" in output.getvalue()


def test_a_run_without_a_device_is_judged_by_its_requests(tmp_path: Path) -> None:
    simulate(Knobs(people=1, window=500.0), tmp_path)
    (tmp_path / "device.jsonl").unlink()
    told = explain(tmp_path, console=Console(file=StringIO()))
    assert told.verdict.headline == "no device record"
    assert told.verdict.mostly == Cause.WINDOW
