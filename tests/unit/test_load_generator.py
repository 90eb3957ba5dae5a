"""Whole runs against a server, in a process of its own, that answers as a script says."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.load import GeneratorFailed, RunSpec, run
from loadtest.load.fake_server import Script, serving
from loadtest.load.records import Turn, read_turns
from loadtest.load.spec import ROOT
from loadtest.load.summary import Summary

MIXED = Script(chunks=3, first_s=0.05, gap_s=0.1, refuse_every=5, hang_every=7, break_every=11)
QUICK = Script(chunks=2, first_s=0.02, gap_s=0.1)


def spec(name: str, out: Path, **changes: Any) -> RunSpec:
    usual = {"people": 4, "seconds": 2.0, "warm_up_s": 0.5, "ramp_s": 0.2, "timeout_s": 0.6}
    return RunSpec(name, "stages", "emu_turn", out=out, **usual | changes)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def mixed(out: Path) -> Path:
    """Four people, and a server that refuses, hangs and breaks off now and then."""
    with serving(MIXED) as address:
        return run(spec("mixed", out, knobs={"gap_ms": 4}, series="fine"), address)


@pytest.fixture(scope="module")
def quick() -> Iterator[str]:
    with serving(QUICK) as address:
        yield address


def facts(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return told


def by_outcome(folder: Path) -> dict[str, list[Turn]]:
    turns: dict[str, list[Turn]] = {}
    for turn in read_turns(folder):
        turns.setdefault(turn.outcome, []).append(turn)
    return turns


def test_every_turn_is_written_with_its_outcome_and_reason(mixed: Path) -> None:
    outcomes = by_outcome(mixed)
    assert {turn.reason for turn in outcomes["refused"]} == {"OVERLOADED at think"}
    assert {turn.reason for turn in outcomes["timeout"]} == {"DEADLINE_MISSED at client"}
    assert {turn.reason for turn in outcomes["error"]} == {"STAGE_FAILED at client"}
    assert {turn.reason for turn in outcomes["ok"]} == {""}


def test_an_answered_turn_has_all_its_chunks_and_the_last_events(mixed: Path) -> None:
    for turn in by_outcome(mixed)["ok"]:
        assert turn.intended_ns <= turn.sent_ns < turn.chunks_ns[0]
        assert turn.chunks_ns == sorted(turn.chunks_ns)
        assert turn.chunk_audio_ms == [320.0] * 3
        assert turn.events[-1]["turn"] == turn.turn
        assert turn.chunks_ns[-1] <= turn.end_ns


def test_the_client_gives_up_when_its_time_is_over_and_keeps_what_had_come(mixed: Path) -> None:
    for turn in by_outcome(mixed)["timeout"]:
        assert turn.latency_ns >= 0.6e9
        assert len(turn.chunks_ns) == 1
        assert turn.events


def test_no_two_turns_have_the_same_id(mixed: Path) -> None:
    ids = Counter(turn.turn for turn in read_turns(mixed))
    assert max(ids.values()) == 1


def test_the_run_says_what_it_was_and_when_it_was_measured(mixed: Path) -> None:
    told = facts(mixed)
    assert told["measured_to_ns"] - told["measured_from_ns"] == 2_000_000_000
    assert told["measured_from_ns"] - told["started_ns"] == 500_000_000
    assert (told["emulated"], told["series"], told["knobs"]) == (True, "fine", {"gap_ms": 4})
    assert told["generator"]["sent"] == sum(turn.counted for turn in read_turns(mixed))


def test_turns_count_when_they_were_meant_to_start_in_the_measured_time(mixed: Path) -> None:
    told = facts(mixed)
    for turn in read_turns(mixed):
        inside = told["measured_from_ns"] <= turn.intended_ns < told["measured_to_ns"]
        assert turn.counted == inside


def test_load_goes_on_until_all_turns_that_count_have_ended(mixed: Path) -> None:
    cut = by_outcome(mixed).get("open", [])
    assert not any(turn.counted for turn in cut)
    assert facts(mixed)["counts"].get("open", 0) == len(cut)


def test_one_person_waits_for_the_answer_before_speaking_again(mixed: Path) -> None:
    last: dict[int, int] = {}
    for turn in sorted(read_turns(mixed), key=lambda turn: turn.sent_ns):
        assert turn.intended_ns >= last.get(turn.user, 0)
        last[turn.user] = turn.end_ns


def test_a_trace_starts_turns_at_its_own_times_whatever_is_still_open(
    out: Path, quick: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps([0.6, 0.61, 0.62, 1.0]))
    folder = run(spec("trace", out, mode="open", trace=trace, seconds=1.0), quick)
    started_ns = facts(folder)["started_ns"]
    offsets = sorted((turn.intended_ns - started_ns) // 1_000_000 for turn in read_turns(folder))
    assert offsets == [600, 610, 620, 1000]
    assert Summary.read(folder).answered == 4


def test_poisson_arrivals_go_on_through_the_whole_run(out: Path, quick: str) -> None:
    folder = run(spec("poisson", out, mode="open", rate=40.0, seconds=1.0, seed=3), quick)
    summary = Summary.read(folder)
    assert summary.answered == summary.counted > 10


def test_a_generator_that_could_not_keep_up_marks_its_run_invalid(
    out: Path, quick: str, tmp_path: Path
) -> None:
    trace = tmp_path / "burst.csv"
    trace.write_text("0.6\n" * 1500)
    burst = spec("burst", out, mode="open", trace=trace, seconds=1.0, timeout_s=10.0)
    folder = run(burst, quick)
    told = facts(folder)["generator"]
    assert not told["valid"]
    assert "requests left" in told["why"]
    assert Summary.read(folder).invalid == told["why"]
    assert all(turn.latency_ns >= turn.end_ns - turn.sent_ns for turn in read_turns(folder))


def test_a_generator_that_finds_no_server_says_so(out: Path) -> None:
    with pytest.raises(GeneratorFailed, match="no server listens there"):
        run(spec("nobody", out), "127.0.0.1:1")


def test_whoever_starts_a_run_stays_unpatched() -> None:
    code = (
        "import loadtest.load, sys; from gevent import monkey;"
        "sys.exit(monkey.is_module_patched('socket') or 'grpc' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_locust_runs_the_same_people_headless_and_ends_by_itself(quick: str) -> None:
    """Public case L2."""
    command = [sys.executable, "-m", "locust", "-f", "loadtest/load/locustfile.py"]
    load = ["SpokenTurnUser", "--headless", "-u", "20", "-r", "20", "-t", "2s", "--only-summary"]
    target = ["--host", quick, "--model", "emu_turn"]
    ended = subprocess.run(
        [*command, *load, *target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "first audio" in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
