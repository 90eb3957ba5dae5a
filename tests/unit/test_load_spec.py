from pathlib import Path
from typing import Any

import pytest

from loadtest.load import RunSpec
from loadtest.load.runner import describe


def spec(**changes: Any) -> RunSpec:
    return RunSpec(**{"name": "a", "target": "stages", "model": "emu_turn"} | changes)


def test_a_spec_survives_its_json(tmp_path: Path) -> None:
    there = spec(
        mode="open",
        trace=tmp_path / "t.csv",
        buckets=(1, 2),
        recordings=(tmp_path / "a.wav",),
        options={"stream": False},
        knobs={"gap_ms": 4},
        emulation=tmp_path / "emulation.json",
        out=tmp_path,
    )
    assert RunSpec.from_json(there.to_json()) == there


def test_relative_paths_become_absolute_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    back = RunSpec.from_json(spec(mode="open", trace=Path("t.csv")).to_json())
    assert back.trace == Path.cwd() / "t.csv"


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown keys \['peple'\]"):
        RunSpec.from_json('{"name": "a", "target": "b", "model": "c", "peple": 3}')


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "../a"}, "name of a folder"),
        ({"mode": "half"}, "mode is one of"),
        ({"mode": "open"}, "has a rate or a trace"),
        ({"rate": 1.0}, "has a rate or a trace"),
        ({"mode": "open", "rate": 1.0, "trace": Path("a")}, "not both"),
        ({"mode": "open", "rate": 0.0}, "more than 0"),
        ({"people": 0}, "at least one person"),
        ({"buckets": ()}, "one bucket"),
        ({"seconds": float("nan")}, "more than 0"),
        ({"warm_up_s": -1.0}, "not a time"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        spec(**changes)


def test_a_run_without_recordings_says_that_it_is_emulated() -> None:
    assert describe(spec(people=64)) == "a: 64 people (emulated device)"
    assert describe(spec(mode="open", rate=2.5, recordings=(Path("a"),))) == "a: 2.5 turns/s"
