"""The seed's experiment: which runs are chosen, and what a figure that is missing does."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from deploy.launcher import Server
from loadtest.ledger import Explanation
from loadtest.seed import __main__ as seed
from loadtest.seed import harness, plan
from loadtest.seed.figures import TARGETS, Book, ledger


class Told:
    """An explanation with these figures."""

    def __init__(self, figures: Mapping[str, Any]) -> None:
        self._figures = figures

    def figures(self) -> Mapping[str, Any]:
        return self._figures


def book(**runs: Mapping[str, Any]) -> Book:
    told = {name.replace("_", "-"): Told(figures) for name, figures in runs.items()}
    return Book(cast(Mapping[str, Explanation], told))


def test_a_name_that_no_run_has_is_refused_and_earlier_results_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(seed, "OUT", tmp_path)
    (tmp_path / "seed" / "stages-64").mkdir(parents=True)
    assert seed.main(["--only", "stagse-64"]) == 2
    assert "stagse-64" in capsys.readouterr().err
    assert (tmp_path / "seed" / "stages-64").is_dir()


def test_the_worst_run_counts_as_unexplained_and_one_without_the_figure_fails() -> None:
    shares = {"unexplained_p50_share": 0.001, "unexplained_p95_share": -0.002}
    worse = {"unexplained_p50_share": 0.01, "unexplained_p95_share": 0.0}
    assert ledger(book(monolith_64=shares, stages_64=worse)) == {
        "unexplained_p50_share": 0.01,
        "unexplained_p95_share": 0.002,
    }
    found = ledger(book(monolith_64=shares, stages_64={}))
    assert math.isnan(found["unexplained_p50_share"])
    assert not TARGETS["unexplained_p50_share"].met(found["unexplained_p50_share"])


def test_a_process_is_killed_in_the_middle_of_every_part_of_the_measured_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, kills = [100.0], []
    monkeypatch.setattr(harness.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(harness.time, "sleep", lambda s: now.__setitem__(0, now[0] + s))
    monkeypatch.setattr(
        harness, "_kill_and_reload", lambda server, model: kills.append((model, now[0]))
    )
    [_, one] = plan.killed()
    short = replace(one, warm_up_s=4.0, seconds=20.0, kill_every_s=10.0)
    harness._kill_now_and_then(short, cast(Server, None))
    assert kills == [("emu_listen", 109.0), ("emu_listen", 119.0)]
    assert one.seconds / one.kill_every_s >= 3
