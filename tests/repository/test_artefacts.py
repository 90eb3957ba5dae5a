"""Artefacts that have been built keep the contract that config.pbtxt gives them."""

import json
from pathlib import Path

import onnx
import pytest

from build import contract
from tests.repository.configs import NATIVE_BACKENDS, ROOT, folders, of_backend

NATIVE_OPSET, NATIVE_IR = 18, 9
"""What the ONNX Runtime of stock Triton images reads."""

GRAPHS = sorted((ROOT / "model_repository").glob("*/1/*.onnx"))
NATIVE = [path for path in GRAPHS if path.parents[1].name in of_backend(*NATIVE_BACKENDS)]
ARTEFACTS = sorted(
    path
    for path in (ROOT / "model_repository").glob("*/1/*")
    if path.suffix in (".onnx", ".json")
    and not path.name.endswith((".onnx.json", ".json.json", ".plan.json"))
)


def name_of(path: Path) -> str:
    return f"{path.parents[1].name}/{path.name}"


@pytest.mark.parametrize("path", GRAPHS, ids=name_of)
def test_a_graph_keeps_the_contract_of_its_config(path: Path) -> None:
    """Public cases J1 and J7."""
    contract.check(path.parents[1] / "config.pbtxt", path)


@pytest.mark.parametrize("path", NATIVE, ids=name_of)
def test_native_graphs_are_readable_by_stock_images(path: Path) -> None:
    """Public case J4."""
    model = onnx.load(path)
    assert model.ir_version <= NATIVE_IR
    assert [(entry.domain, entry.version <= NATIVE_OPSET) for entry in model.opset_import] == [
        ("", True)
    ]
    assert not model.functions
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    assert not [node.name for node in model.graph.node if node.op_type.startswith("Random")]
    for value in [*model.graph.input, *model.graph.output]:
        assert value.type.tensor_type.shape.dim[0].dim_param, f"{value.name}: batch is fixed"


@pytest.mark.parametrize("name", of_backend("slot_engine"))
def test_a_step_graph_returns_every_pool_it_takes(name: str) -> None:
    for file in ("model.onnx", "portable.onnx"):
        path = folders()[name] / "1" / file
        if not path.exists():
            continue
        graph = onnx.load(path, load_external_data=False).graph
        inputs = {value.name for value in graph.input}
        outputs = {value.name for value in graph.output}
        pools = {one for one in inputs if one[0] in "kv" and one[1:].isdigit()}
        assert {"k0", "v0"} <= pools
        assert {f"{one[0]}o{one[1:]}" for one in pools} == {
            one for one in outputs if one[1] == "o" and one[2:].isdigit()
        }


@pytest.mark.parametrize("path", ARTEFACTS, ids=name_of)
def test_an_artefact_says_where_it_comes_from(path: Path) -> None:
    provenance = path.with_name(f"{path.name}.json")
    assert provenance.is_file(), "written by hand, or a build was broken off"
    assert isinstance(json.loads(provenance.read_text()), dict)


def test_no_half_written_artefact_is_left() -> None:
    assert not list((ROOT / "model_repository").glob("*/1/*.partial"))
