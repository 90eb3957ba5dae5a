"""`make test-gpu` and `make bench-gpu` say so where there is no GPU, and run where something stands
in for one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.gpu import __main__ as program
from loadtest.gpu import graphs, slots
from loadtest.gpu.graphs import Case
from loadtest.gpu.machine import Machine, Rates
from tests import fake_engines


def read(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


def test_without_a_gpu_nothing_is_run_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "found", lambda: "PyTorch finds no GPU")
    out = tmp_path / "gpu.json"
    for task in ("test", "bench"):
        assert program.main([task, "--out", str(out)]) == 0
        said = capsys.readouterr().out.splitlines()
        assert said == [f"{task}-gpu not run: PyTorch finds no GPU"]
    reason = {"status": "not run", "reason": "PyTorch finds no GPU"}
    assert read(out) == {"test": reason, "bench": reason}
    assert program.main(["present"]) == 1


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """One graph of each kind."""
    wanted = ("acoustic_condition", "acoustic_step_16", "vad_step", "asr_decode_step")
    found = [case for case in graphs.cases() if case.name.startswith(wanted)]
    monkeypatch.setattr(program, "cases", lambda: found)
    return found


def test_a_rehearsal_says_that_it_is_one(small: list[Case], tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    assert program.main(["test", "--rehearse", "--out", str(out)]) == 0
    found = read(out)["test"]
    assert found["status"] == "rehearsed on the CPU"
    assert set(found["errors"]) | set(found["left_out"]) == {case.name for case in small}
    assert found["wrong"] == []


def test_a_graph_that_is_wrong_fails_the_test(
    small: list[Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "worst_error", lambda case, machine: float("nan"))
    assert program.main(["test", "--rehearse", "--out", str(tmp_path / "gpu.json")]) == 1


def test_every_graph_has_its_smallest_size_and_runs_at_it() -> None:
    """Public case J8: the smallest shapes that a TensorRT profile allows are run, not assumed."""
    names = {case.name for case in graphs.cases()}
    least = {"asr_encoder_2", "acoustic_step_1", "vocoder_11", "vad_step_1"}
    assert least <= names
    for case in graphs.cases():
        if case.name in least:
            for value in graphs.answers(case, "CPUExecutionProvider", {}).values():
                assert np.isfinite(value).all()


def test_pools_are_bound_in_place_and_a_step_is_repeatable() -> None:
    [case] = [one for one in graphs.cases() if one.name == "asr_decode_step_n1_t1_c32"]
    running = graphs.Running(case, Machine.rehearsal(), {})
    running()
    names = [one.name for one in running.session.get_outputs()]
    found = dict(zip(names, running.binding.copy_outputs_to_cpu(), strict=True))
    alone = graphs.answers(case, "CPUExecutionProvider", {})
    np.testing.assert_array_equal(found["logits"], alone["logits"])
    np.testing.assert_array_equal(found["ko0"], alone["ko0"])


def test_the_floor_is_the_longer_of_moving_and_multiplying() -> None:
    reached = Rates(1e9, {"fp32": 1e12})
    assert reached.floor_s(1e12, 1e6, "fp32") == 1.0
    assert reached.floor_s(1e6, 2e9, "fp32") == 2.0


@pytest.fixture
def engines(tmp_path: Path) -> Path:
    """A repository with an engine of the fake TensorRT for one step model."""
    fake_engines.of_model(graphs.REPOSITORY / "prosody_step" / "1", tmp_path)
    return tmp_path


def test_slot_pools_are_tried_where_there_is_an_engine_and_told_where_not(engines: Path) -> None:
    found = slots.parity("cpu", engines)
    assert found["prosody_step"] == 1.0
    assert found["think_step"] == "run: python -m build export --portable think_step"
    assert slots.wrong(found | {"asr_decode_step": 0.5}) == ["asr_decode_step"]


def test_a_step_is_timed_for_each_number_of_rows_with_and_without_graphs(
    engines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(work: Callable[[], object], seconds: float) -> list[float]:
        work()
        return [0.001]

    monkeypatch.setattr(slots, "timed_s", timed)
    found = slots.bench("cpu", engines)["prosody_step"]
    rows = {str(count): 1.0 for count in range(1, 17)}
    assert found == {"graph": rows, "no_graph": rows}


def test_an_engine_that_cannot_be_used_is_told(engines: Path) -> None:
    (engines / "prosody_step/1/model-cc0.0.plan").unlink()
    assert "there is no such engine; run:" in slots.parity("cpu", engines)["prosody_step"]
