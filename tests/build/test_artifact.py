"""Artefacts: written whole or not at all, checked, and rebuilt only when something changed."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from build import artifact, contract
from build.__main__ import main
from build.artifact import Artifact
from build.errors import ContractBroken, WeightsInvalid
from build.lineage import ROOT, code_of
from build.onnx_graph import FLOAT, INT64, Graph, Shape

CONFIG = """
name: "toy"
backend: "onnxruntime"
max_batch_size: 4
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1, 3 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1, 3 ] } ]
"""
STEP_CONFIG = """
name: "toy"
backend: "slot_engine"
max_batch_size: 1
parameters { key: "capacity" value { string_value: "16" } }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that holds the model `toy`, and a weights file."""
    monkeypatch.setattr(artifact, "REPOSITORY", tmp_path)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/config.pbtxt").write_text(CONFIG)
    (tmp_path / "weights").write_text("one")
    return tmp_path


def native(kind: str = "Relu", shape: Shape = ("B", "T", 3), opset: int = 17) -> onnx.ModelProto:
    graph = Graph("toy")
    graph.input("X", FLOAT, shape)
    graph.op(kind, "X", out="Y")
    graph.output("Y", FLOAT, shape)
    return graph.model(opset=opset, ir_version=8)


def step(capacity: int) -> onnx.ModelProto:
    graph = Graph("toy")
    graph.input("ids", INT64, ["B", "T"])
    graph.input("start", INT64, ["B"])
    for side in "kv":
        graph.input(f"{side}0", FLOAT, ["B", 2, capacity, 4])
        graph.op("Identity", f"{side}0", out=f"{side}o0")
        graph.output(f"{side}o0", FLOAT, ["B", 2, capacity, 4])
    return graph.model(opset=24)


def make_toy(target: Path) -> None:
    onnx.save(native(), target)


def toy(folder: Path) -> Artifact:
    return Artifact("toy", "model.onnx", make_toy, lambda: [folder / "weights"])


def test_an_artefact_is_up_to_date_until_its_weights_or_its_bytes_change(folder: Path) -> None:
    made = toy(folder)
    assert not made.up_to_date()
    made.build()
    assert made.up_to_date()
    (folder / "weights").write_text("another")
    assert not made.up_to_date()
    made.build()
    made.target.write_bytes(made.target.read_bytes() + b"\0")
    assert not made.up_to_date()


def test_provenance_says_what_an_artefact_was_made_of(folder: Path) -> None:
    made = toy(folder)
    made.build()
    written = json.loads(made.provenance_path.read_text())
    assert written["artifact"] == "toy/1/model.onnx"
    assert written["onnx"] == {"ir": 8, "opsets": {"ai.onnx": 17}}
    assert list(written["sources"]) == [str(folder / "weights")]
    assert "build/onnx_graph.py" in written["exporter"]
    assert {"torch", "onnx"} <= set(written["tools"])


def test_missing_weights_are_named_with_the_way_to_make_them(folder: Path) -> None:
    made = toy(folder)
    made.build()
    (folder / "weights").unlink()
    with pytest.raises(WeightsInvalid, match=r"weights.*build train"):
        made.up_to_date()


def test_the_command_line_names_the_models_it_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--force", "nosuch"]) == 1
    assert "think_step" in capsys.readouterr().err


def test_a_graph_that_breaks_its_contract_is_never_published(folder: Path) -> None:
    """Public case J1."""
    good = toy(folder)
    good.build()
    before = good.target.read_bytes()
    bad = Artifact(
        "toy", "model.onnx", lambda target: onnx.save(native(shape=("B", 5)), target), list
    )
    with pytest.raises(ContractBroken) as refusal:
        bad.build()
    assert "-input X: TYPE_FP32 [-1, -1, 3]" in str(refusal.value)
    assert "+input X: TYPE_FP32 [-1, 5]" in str(refusal.value)
    assert good.target.read_bytes() == before
    assert not list(good.target.parent.glob("*.partial"))


@pytest.mark.parametrize(
    "model",
    [native(opset=19), native("Gelu", opset=20), step(16)],
    ids=["newer opset", "newer operator", "newer IR"],
)
def test_a_native_model_needs_operators_the_stock_images_know(
    folder: Path, model: onnx.ModelProto
) -> None:
    path = folder / "model.onnx"
    onnx.save(model, path)
    with pytest.raises(ContractBroken, match=r"opsets|IR version"):
        contract.check(folder / "toy/config.pbtxt", path)


def test_a_graph_may_leave_open_a_dimension_that_the_config_fixes(folder: Path) -> None:
    path = folder / "model.onnx"
    onnx.save(native(shape=("B", "T", "C")), path)
    contract.check(folder / "toy/config.pbtxt", path)


def test_a_step_graph_must_have_pools_of_the_configured_capacity(folder: Path) -> None:
    config, path = folder / "toy/config.pbtxt", folder / "model.onnx"
    config.write_text(STEP_CONFIG)
    onnx.save(step(16), path)
    contract.check(config, path)
    onnx.save(step(32), path)
    with pytest.raises(ContractBroken, match="32"):
        contract.check(config, path)


def test_a_weight_is_stored_as_it_was_given() -> None:
    graph = Graph("toy")
    graph.weight("w", np.float32([[1, 2], [3, 4]]).T)
    (stored,) = graph.model(opset=17).graph.initializer
    assert onnx.numpy_helper.to_array(stored).tolist() == [[1, 3], [2, 4]]


def test_code_is_followed_through_imports_but_not_into_the_file_movers() -> None:
    from build.smollm.export import export_step

    files = {str(path.relative_to(ROOT)) for path in code_of(export_step)}
    assert {"build/smollm/export.py", "build/smollm/weights.py", "build/step_graph.py"} <= files
    assert "build/fetch.py" not in files
    assert "build/smollm/dialogs.py" not in files


def test_every_artefact_belongs_to_a_model_with_a_config() -> None:
    made = artifact.all_artifacts()
    assert len({entry.target for entry in made}) == len(made)
    for entry in made:
        assert (artifact.REPOSITORY / entry.model / "config.pbtxt").exists()
