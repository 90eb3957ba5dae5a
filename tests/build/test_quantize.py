"""Products in int8, row by row: near the fp32 ones, and the same in any company."""

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from build.onnx_graph import FLOAT, Graph
from build.quantize import int8_columns, int8_rows
from python_backends.encoder_window.mel import log_mel
from tests.build.greedy import REPOSITORY, open_graph

Floats = NDArray[np.float32]
IN, OUT = 64, 32


def normal(*shape: int) -> Floats:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def weight() -> Floats:
    return normal(IN, OUT)


@pytest.fixture(scope="module")
def graph(weight: Floats) -> onnx.ModelProto:
    """Y = X W V with one W for two products, and Y X^T, whose weight is no constant."""
    made = Graph("products")
    made.input("X", FLOAT, ["B", "T", IN])
    first = made.op("MatMul", "X", made.weight("w", weight))
    made.op("MatMul", "X", made.weight("w", weight), out="again")
    made.op("MatMul", first, made.op("Transpose", first, perm=[0, 2, 1]), out="scores")
    made.op("Identity", first, out="Y")
    made.output("Y", FLOAT, ["B", "T", OUT])
    made.output("again", FLOAT, ["B", "T", OUT])
    made.output("scores", FLOAT, ["B", "T", "T"])
    return made.model(opset=17, ir_version=9)


def run(model: onnx.ModelProto, x: Floats) -> list[Floats]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return [np.asarray(one, np.float32) for one in session.run(["Y", "again", "scores"], {"X": x})]


def test_every_constant_product_is_rewritten_and_no_other(graph: onnx.ModelProto) -> None:
    rewritten = int8_rows(graph)
    onnx.checker.check_model(rewritten)
    kinds = [node.op_type for node in rewritten.graph.node]
    assert kinds.count("MatMulInteger") == 2
    assert kinds.count("MatMul") == 1
    assert "w" not in {one.name for one in rewritten.graph.initializer}
    assert [node.op_type for node in graph.graph.node].count("MatMul") == 3


def test_a_weight_that_another_operator_uses_too_stays_for_it(weight: Floats) -> None:
    made = Graph("tied")
    made.input("X", FLOAT, ["B", IN])
    made.op("MatMul", "X", made.weight("w", weight), out="Y")
    made.op("Gather", made.weight("w", weight), made.ints(3), out="row")
    made.output("Y", FLOAT, ["B", OUT])
    made.output("row", FLOAT, [1, OUT])
    session = onnxruntime.InferenceSession(
        int8_rows(made.model(opset=17, ir_version=9)).SerializeToString()
    )
    (row,) = session.run(["row"], {"X": normal(2, IN)})
    np.testing.assert_array_equal(row[0], weight[3])


def test_what_is_no_matrix_has_no_columns_and_is_left_as_it_is() -> None:
    made = Graph("stack")
    made.input("X", FLOAT, [2, 3, IN])
    made.op("MatMul", "X", made.weight("stack", normal(2, IN, OUT)), out="Y")
    made.output("Y", FLOAT, [2, 3, OUT])
    kinds = [node.op_type for node in int8_rows(made.model(opset=17, ir_version=9)).graph.node]
    assert kinds == ["MatMul"]


def test_a_product_is_near_the_fp32_one(graph: onnx.ModelProto, weight: Floats) -> None:
    x = normal(2, 5, IN)
    y, again, _ = run(int8_rows(graph), x)
    error = np.sqrt(np.mean((y - x @ weight) ** 2) / np.mean((x @ weight) ** 2))
    assert error < 0.02
    np.testing.assert_array_equal(y, again)


def test_a_row_is_the_same_beside_a_row_a_million_times_larger(graph: onnx.ModelProto) -> None:
    x = normal(1, 3, IN)
    loud = x.copy()
    loud[0, 1:] *= 1e6
    alone, beside = run(int8_rows(graph), x)[0], run(int8_rows(graph), loud)[0]
    np.testing.assert_array_equal(alone[0, 0], beside[0, 0])


def test_rows_and_columns_of_zeros_give_zeros(graph: onnx.ModelProto) -> None:
    assert not run(int8_rows(graph), np.zeros((1, 2, IN), np.float32))[0].any()
    values, scale = int8_columns(np.zeros((4, 2), np.float32))
    assert not values.any()
    assert (scale > 0).all()


def test_the_encoder_in_int8_is_near_the_one_in_fp32_and_the_same_in_any_company() -> None:
    folder = REPOSITORY / "asr_encoder" / "1"
    sound = 0.1 * np.random.default_rng(0).standard_normal(16_000).astype(np.float32)
    mel = log_mel(sound, 1500)[None]
    (states,) = open_graph(folder / "model.onnx").run(["HIDDEN"], {"MEL": mel})
    (precise,) = open_graph(folder / "portable.onnx").run(["HIDDEN"], {"MEL": mel})
    assert np.sqrt(np.mean((states - precise) ** 2) / np.mean(precise**2)) < 0.08
    crowd = np.concatenate([normal(1, 80, 1500), mel, 3 * mel])
    (together,) = open_graph(folder / "model.onnx").run(["HIDDEN"], {"MEL": crowd})
    np.testing.assert_array_equal(together[1], states[0])


def test_the_shipped_encoder_is_a_third_of_the_portable_one() -> None:
    sizes = [
        (REPOSITORY / "asr_encoder/1" / n).stat().st_size for n in ("model.onnx", "portable.onnx")
    ]
    assert sizes[0] < 0.4 * sizes[1]
