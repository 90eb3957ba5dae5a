"""`make eval`: what it writes of the parts that it runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from build import evaluate
from build.evaluate import Found
from build.smollm import evaluate as judged
from build.smollm.evaluate import QUALITY, judge
from build.smollm.turns import Line
from build.spoken_orders import SpokenTurn, conversation_html
from loadtest.load.runner import bars
from loadtest.seed.figures import at_least


def test_what_is_written_is_flat_and_what_is_missing_is_not_met() -> None:
    targets = {"a": at_least(2), "b": at_least(1), "c": at_least(0)}
    written = evaluate.result({"voice": Found({"a": 1.0, "b": 1.0}, targets, {"d": []})})
    assert written == {
        "summary": {"a": 1.0, "b": 1.0},
        "targets": {"a": ">= 2", "b": ">= 1", "c": ">= 0"},
        "met": {"a": False, "b": True, "c": False},
        "detail": {"voice": {"d": []}},
    }


def test_orders_are_told_as_numbers_and_kept_as_they_were_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = json.loads(QUALITY.read_text())
    found = {key: value for key, value in report.items() if key not in ("model", "adapters_sha256")}

    def evaluate_orders(progress: Callable[[str], None]) -> dict[str, Any]:
        progress("an answer")
        return found

    monkeypatch.setattr(judged, "evaluate_orders", evaluate_orders)
    monkeypatch.setattr(judged, "QUALITY", tmp_path / "quality.json")
    monkeypatch.setattr(evaluate, "OUT", tmp_path)
    told = evaluate.orders(bars())
    assert told.figures["orders_right"] == found["right"]
    assert told.detail["held_out"] == found["held_out"]
    assert set(told.targets) <= told.figures.keys()
    assert found["held_out"][0][0]["answer"] in told.pages[0].read_text()
    told.record()
    assert json.loads((tmp_path / "quality.json").read_text()) == report


def test_a_part_that_fails_leaves_what_the_others_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def failing(_: object) -> Found:
        raise OSError("no sound")

    kept: list[str] = []
    parts = {
        "voice": lambda _: Found({"a": 1.0}, {}, {}, lambda: kept.append("voice")),
        "page": failing,
    }
    monkeypatch.setattr(evaluate, "PARTS", parts)
    monkeypatch.setattr(evaluate, "EVAL", tmp_path / "eval.json")
    with pytest.raises(OSError, match="no sound"):
        evaluate.main(["--record", "--only", "voice", "page"])
    assert json.loads((tmp_path / "eval.json").read_text())["summary"] == {"a": 1.0}
    assert kept == ["voice"]


def test_a_spoken_conversation_has_both_sounds_and_marks_what_is_wrong() -> None:
    line = Line("A taco & a Coke", "Got it, a taco. What size Coke would you like?")
    sound, nothing = np.zeros(2400, np.float32), np.zeros(0, np.float32)
    turns = [
        SpokenTurn(line, sound, line.heard, line.good, sound, "[Order: a taco. Total: $2.50]"),
        SpokenTurn(line, sound, "A tack oh", "", nothing, "[No order yet]", "OVERLOADED <x>"),
    ]
    found = conversation_html("One", turns, judge((line, line), [turn.answer for turn in turns]))
    assert found.count("<audio") == 4
    assert found.count("reply wrong") == 1
    assert "A taco &amp; a Coke" in found
    assert found.count("understood: A tack oh") == 1
    assert "OVERLOADED &lt;x&gt;" in found
    assert turns[1].told == {"understood": "A tack oh", "error": "OVERLOADED <x>"}
