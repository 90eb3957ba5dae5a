"""Where models of a user's own are put."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from build.own import placing
from build.own.placing import Place, save_graph
from tests.build.greedy import open_graph


def doubling() -> onnx.ModelProto:
    """A graph whose weight is large enough to lie beside it."""
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64]) for name in "xy"
    )
    weight = onnx.numpy_helper.from_array(2 * np.eye(64, dtype=np.float32), "weight")
    node = onnx.helper.make_node("MatMul", ["x", "weight"], ["y"])
    made = onnx.helper.make_graph([node], "doubling", [x], [y], initializer=[weight])
    opset = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(made, ir_version=8, opset_imports=opset)


def test_a_graph_too_large_for_one_file_has_its_weights_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, trial = Place(tmp_path / "own", "asr_encoder"), tmp_path / "own" / ".trial"
    for most, files in ((1000, ["model.onnx", "model.onnx.data"]), (2**31, ["model.onnx"])):
        monkeypatch.setattr(placing, "PROTOBUF_MOST", most)
        trial.mkdir()
        save_graph(doubling(), trial / "model.onnx")
        assert len({path.stat().st_mode for path in trial.iterdir()}) == 1
        place.take(trial)
        assert sorted(path.name for path in place.version.iterdir()) == files, "none is left over"
        (y,) = open_graph(place.version / "model.onnx").run(["y"], {"x": np.ones((1, 64), "f")})
        assert (y == 2).all()
        trial.rmdir()
