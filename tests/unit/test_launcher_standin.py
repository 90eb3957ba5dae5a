"""The stand-in's own parts: what shares a call, what state is kept, which files are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from deploy.standins.onnxruntime.native_graph import Graph, header
from deploy.standins.shared.batching import Arrays, SequenceStates, run_alone, run_together
from python_backends.contract import ArtefactRefused

CONFIG: dict[str, Any] = {
    "name": "negate",
    "max_batch_size": 4,
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
}


class Doubler:
    """Doubles X, refuses negative values, counts its calls."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, feed: Arrays) -> dict[str, NDArray[Any]]:
        self.shapes.append(feed["X"].shape)
        if (feed["X"] < 0).any():
            raise ValueError("negative")
        return {"Y": 2 * feed["X"]}


def feeds(*rows: list[list[float]]) -> list[dict[str, NDArray[Any]]]:
    return [{"X": np.array(row, np.float32)} for row in rows]


def test_requests_of_one_shape_share_a_call_and_get_their_own_rows() -> None:
    run = Doubler()
    answers = run_together(run, feeds([[1], [2]], [[3]], [[4], [5]]))
    assert run.shapes == [(5, 1)]
    assert [answer["Y"].tolist() for answer in answers if isinstance(answer, dict)] == [
        [[2], [4]],
        [[6]],
        [[8], [10]],
    ]


def test_each_shape_is_a_call_of_its_own() -> None:
    run = Doubler()
    answers = run_together(run, feeds([[1]], [[2, 3]], [[4]]))
    assert sorted(run.shapes) == [(1, 2), (2, 1)]
    assert [answer["Y"].shape for answer in answers if isinstance(answer, dict)] == [
        (1, 1),
        (1, 2),
        (1, 1),
    ]


def test_only_the_bad_request_of_a_batch_fails() -> None:
    """Public cases F4 and F5."""
    run = Doubler()
    answers = run_together(run, feeds([[1]], [[-2]], [[3]]))
    assert isinstance(answers[1], ValueError)
    assert isinstance(answers[0], dict)
    assert isinstance(answers[2], dict)
    assert run.shapes == [(3, 1), (1, 1), (1, 1), (1, 1)]


def test_a_model_without_batch_dim_runs_request_by_request() -> None:
    run = Doubler()
    assert len(run_alone(run, [{"X": np.ones(2)}, {"X": np.ones(2)}])) == 2
    assert run.shapes == [(2,), (2,)]


def test_state_begins_at_zero_and_ends_with_its_sequence() -> None:
    states = SequenceStates({"S": np.zeros((1, 1))}, limit=2)
    assert states.before(1, start=True)["S"].item() == 0
    states.after(1, {"S": np.full((1, 1), 5)}, end=False)
    assert states.before(1, start=False)["S"].item() == 5
    assert states.before(1, start=True)["S"].item() == 0
    states.after(1, {"S": np.full((1, 1), 6)}, end=True)
    assert len(states) == 0


def test_the_sequence_that_was_used_longest_ago_makes_room() -> None:
    states = SequenceStates({"S": np.zeros((1, 1))}, limit=2)
    for sequence in ("a", "b", "a", "c"):
        states.after(sequence, {"S": np.full((1, 1), ord(sequence))}, end=False)
    kept = {name: states.before(name, start=False)["S"].item() for name in "abc"}
    assert kept == {"a": ord("a"), "b": 0, "c": ord("c")}


def test_kept_state_is_a_copy() -> None:
    states = SequenceStates({"S": np.zeros((1, 1))}, limit=2)
    memory = np.full((1, 1), 3.0)
    states.after("a", {"S": memory}, end=False)
    memory[:] = 9
    assert states.before("a", start=False)["S"].item() == 3


def graph(path: Path, *, opset: int = 18, ir: int = 9, shape: list[Any] | None = None) -> Path:
    """Y = -X."""
    shape = shape or ["batch", "n"]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "XY"]
    nodes = [helper.make_node("Neg", ["X"], ["Y"])]
    made = helper.make_graph(nodes, "g", value[:1], value[1:])
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=ir), path)
    return path


def test_the_header_is_read_without_the_weights(tmp_path: Path) -> None:
    assert header(graph(tmp_path / "model.onnx")) == (9, {"": 18})


def test_a_graph_runs_by_the_names_of_its_outputs(tmp_path: Path) -> None:
    loaded = Graph(graph(tmp_path / "model.onnx"), CONFIG)
    answer = loaded.run({"X": np.ones((2, 3), np.float32)}, ["Y"])
    assert answer["Y"].tolist() == [[-1] * 3] * 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", r"\(0 bytes\) is no ONNX file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "is no ONNX file"),
        (bytes(range(1, 200)), "is no ONNX file"),
    ],
)
def test_a_file_that_is_no_graph_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    """Public case J2."""
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ArtefactRefused, match=reason):
        Graph(path, CONFIG)


def test_a_missing_graph_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(ArtefactRefused, match=r"has no 1/model\.onnx; run: make build"):
        Graph(tmp_path / "1" / "model.onnx", CONFIG)


def test_a_graph_whose_weights_lie_in_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    """Public case J4."""
    path = graph(tmp_path / "model.onnx")
    model = onnx.load(path)
    model.graph.initializer.append(numpy_helper.from_array(np.ones(1000, np.float32), "W"))
    model.graph.node[0].CopyFrom(helper.make_node("Add", ["X", "W"], ["Y"]))
    onnx.save(model, path, save_as_external_data=True, location="model.data", size_threshold=0)
    (tmp_path / "model.data").unlink()
    with pytest.raises(ArtefactRefused, match=r"model\.data"):
        Graph(path, CONFIG)


@pytest.mark.parametrize(("opset", "ir"), [(99, 9), (18, 99)])
def test_a_graph_too_new_for_the_native_backend_is_refused(
    tmp_path: Path, opset: int, ir: int
) -> None:
    """Public case J4."""
    with pytest.raises(ArtefactRefused, match=rf"IR version {ir} and opset {opset}; .* 9 and 18"):
        Graph(graph(tmp_path / "model.onnx", opset=opset, ir=ir), CONFIG)


@pytest.mark.parametrize(
    ("shape", "dims", "difference"),
    [
        ([1, "n"], [-1], r"input X: config .*\[-1, -1\]\), graph .*\[1, 'n'\]"),
        (["b", 4], [-1], r"input X: config .*\[-1, -1\]\), graph .*\['b', 4\]"),
        (["b", "n", 2], [-1], "input X"),
    ],
)
def test_shapes_that_do_not_fit_the_config_are_listed(
    tmp_path: Path, shape: list[Any], dims: list[int], difference: str
) -> None:
    """Public cases J1 and J7."""
    with pytest.raises(ArtefactRefused, match=difference):
        Graph(graph(tmp_path / "model.onnx", shape=shape), CONFIG)


def test_names_that_do_not_fit_the_config_are_listed(tmp_path: Path) -> None:
    """Public case J7."""
    config = {**CONFIG, "output": [{"name": "Z", "data_type": "TYPE_FP32", "dims": [-1]}]}
    with pytest.raises(
        ArtefactRefused, match=r"(?s)Y: in the graph, not .*Z: in config\.pbtxt, not"
    ):
        Graph(graph(tmp_path / "model.onnx"), config)
