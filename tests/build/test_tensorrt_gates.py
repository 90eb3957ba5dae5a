"""Which nodes stay in fp32, decided on figures and tried on a graph that overflows in fp16."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from build.errors import EngineRefused
from build.onnx_graph import FLOAT, Graph
from build.tensorrt import gates, half
from build.tensorrt.gates import Reading


def test_what_overflows_what_is_near_it_and_what_brings_an_error_in_stays_in_fp32() -> None:
    read = [
        Reading("fine", True, 100.0, 0.001),
        Reading("overflows", False, 70_000.0, float("inf")),
        Reading("fed with it", False, 1.0, float("inf"), float("inf")),
        Reading("near", True, 30_000.0, 0.001),
        Reading("imprecise", True, 10.0, 0.2, 0.01),
        Reading("fed with that", True, 10.0, 0.2, 0.2),
    ]
    assert gates.in_full(read) == ["overflows", "near", "imprecise"]


def test_an_output_that_is_not_finite_or_too_wrong_is_told() -> None:
    read = [
        Reading("HIDDEN", True, 18.0, 0.001),
        Reading("VELOCITY", True, 4.0, 0.03),
        Reading("SPEECH", False, 1.0, float("inf")),
    ]
    assert gates.complaints(read) == ["VELOCITY: error 0.03", "SPEECH: not finite"]


@pytest.fixture
def loud(tmp_path: Path) -> Path:
    """Y = sqrt((300 x)^2): the square is beyond fp16, and beyond bf16's precision."""
    made = Graph("loud")
    made.input("X", FLOAT, ["B", 4])
    scaled = made.op("Mul", "X", made.weight("scale", np.array([300.0], np.float32)), out="scaled")
    square = made.op("Mul", scaled, scaled, out="square")
    made.op("Sqrt", square, out="Y")
    made.output("Y", FLOAT, ["B", 4])
    path = tmp_path / "loud.onnx"
    onnx.save(made.model(opset=17, ir_version=9), path)
    return path


def test_a_square_that_overflows_is_computed_in_fp32_and_the_rest_is_not(loud: Path) -> None:
    feeds = {"X": np.array([[1.0, -2.0, 0.5, 0.0]], np.float32)}
    wrong = half.evaluate(half.in_half(loud), feeds)["Y"]
    assert not np.isfinite(wrong).all()
    model, full = half.settled(loud, feeds)
    gives = {node.output[0]: node.name for node in onnx.load(loud).graph.node}
    assert set(full) == {gives["square"], gives["Y"]}
    right = half.evaluate(model, feeds)["Y"]
    np.testing.assert_allclose(right, [[300.0, 600.0, 150.0, 0.0]], rtol=2e-3)
    assert [value.type.tensor_type.elem_type for value in model.graph.input] == [FLOAT]


def test_a_graph_that_is_not_mended_in_time_is_refused(
    loud: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half, "ROUNDS", 1)
    with pytest.raises(EngineRefused, match=r"wrong in fp16.*Y: not finite"):
        half.settled(loud, {"X": np.ones((1, 4), np.float32)})


def test_a_sum_that_loses_its_small_part_is_kept_in_fp32(tmp_path: Path) -> None:
    made = Graph("lossy")
    made.input("X", FLOAT, ["B", 1])
    large = made.weight("large", np.array([2048.0], np.float32))
    made.op("Sub", made.op("Add", "X", large, out="sum"), large, out="Y")
    made.output("Y", FLOAT, ["B", 1])
    path = tmp_path / "lossy.onnx"
    onnx.save(made.model(opset=17, ir_version=9), path)
    feeds = {"X": np.array([[0.3]], np.float32)}
    assert half.evaluate(half.in_half(path), feeds)["Y"] == 0
    model, full = half.settled(path, feeds)
    assert len(full) == 2
    assert half.evaluate(model, feeds)["Y"] == pytest.approx(0.3, rel=1e-3)
