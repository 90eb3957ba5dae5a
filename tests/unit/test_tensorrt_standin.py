"""The tensorrt stand-in's own parts, over a fake TensorRT that computes at raw addresses."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from build.tensorrt.profiles import Bounds
from deploy.standins.tensorrt.engine_graph import EngineGraph, device_of, engine_file
from python_backends.contract import ArtefactRefused
from python_backends.errors import InvalidInput
from python_backends.tensorrt import device as devices
from python_backends.tensorrt import opening, record
from python_backends.tensorrt.device import Device
from python_backends.tensorrt.errors import EngineUnfit
from tests import fake_engines

NARROW, WIDE = {"X": Bounds((1, 1), (2, 4), (4, 8))}, {"X": Bounds((1, 9), (2, 9), (4, 32))}
CONFIG: dict[str, Any] = {
    "name": "negate",
    "max_batch_size": 4,
    "default_model_filename": "model.plan",
    "cc_model_filenames": {"0.0": "model-cc0.0.plan"},
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A version folder with the engine of Y = -X, of two profiles."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", "n"]) for name in "XY"]
    made = helper.make_graph([helper.make_node("Neg", ["X"], ["Y"])], "g", value[:1], value[1:])
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=9), tmp_path / "g.onnx")
    folder = tmp_path / "negate" / "1"
    fake_engines.write(folder, tmp_path / "g.onnx", [NARROW, WIDE])
    return folder


def served(folder: Path, **other: Any) -> EngineGraph:
    return EngineGraph(folder, CONFIG | other, Device("cpu"))


@pytest.mark.parametrize("shape", [(1, 1), (4, 8), (2, 9), (4, 32), (3, 2)])
def test_a_batch_runs_in_the_profile_that_takes_it(folder: Path, shape: tuple[int, ...]) -> None:
    graph = served(folder)
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for factor in (1, 2):
        np.testing.assert_array_equal(graph.run({"X": factor * values})["Y"], -factor * values)


def test_answers_are_not_those_of_the_next_call(folder: Path) -> None:
    graph = served(folder)
    first = graph.run({"X": np.ones((1, 4), np.float32)})["Y"]
    graph.run({"X": np.zeros((1, 4), np.float32)})
    assert (first == -1).all()


def test_memory_is_taken_once_for_the_largest_batch(folder: Path) -> None:
    graph = served(folder)
    graph.run({"X": np.ones((4, 32), np.float32)})
    held = {name: memory.data_ptr() for name, memory in graph._memory.items()}
    graph.run({"X": np.ones((1, 3), np.float32)})
    assert {name: memory.data_ptr() for name, memory in graph._memory.items()} == held


@pytest.mark.parametrize("shape", [(5, 4), (1, 33), (1, 0)])
def test_a_shape_that_no_profile_takes_is_refused(folder: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"X \[.*\]: \[1, 1\] to \[4, 8\] is accepted"):
        served(folder).run({"X": np.ones(shape, np.float32)})


def test_the_engine_is_that_of_the_gpu(folder: Path) -> None:
    assert engine_file(CONFIG, "0.0") == "model-cc0.0.plan"
    assert engine_file(CONFIG, "8.9") == "model.plan"
    assert engine_file({}, "8.9") == "model.plan"


def test_the_device_is_that_of_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"parameters": {"device": {"string_value": "cpu"}}}
    assert device_of({"model_instance_device_id": "3"}, asked).capability == "0.0"
    with pytest.raises(EngineUnfit, match="'cuda:3': PyTorch finds no GPU"):
        device_of({"model_instance_device_id": "3"}, {"parameters": {}})


def test_a_config_that_does_not_fit_is_refused_line_by_line(folder: Path) -> None:
    """Public case J7."""
    other = [{"name": "X", "data_type": "TYPE_INT64", "dims": [-1]}]
    with pytest.raises(ArtefactRefused, match=r"input X: config \('TYPE_INT64'"):
        served(folder, input=other)
    with pytest.raises(EngineUnfit, match="takes batches of 4, and max_batch_size is 8"):
        served(folder, max_batch_size=8)


REBUILD = "; run: python -m build tensorrt negate"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": "10.8.0.43"}, "built by tensorrt 10.8.0.43, here is tensorrt 11.4.0.106"),
        ({"capability": "9.0"}, "built for compute capability 9.0, this GPU has 0.0"),
    ],
)
def test_an_engine_of_elsewhere_is_refused_with_the_command_that_mends_it(
    folder: Path, changed: dict[str, str], said: str
) -> None:
    """Public case J2."""
    fake_engines.write(folder, folder.parents[1] / "g.onnx", [NARROW], **changed)
    with pytest.raises(EngineUnfit) as refused:
        served(folder)
    assert said in str(refused.value)
    assert str(refused.value).endswith(REBUILD)


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"version": "10.8.0.43"}, "version 10.8.0.43"), ({"capability": "9.0"}, "compute 9.0")],
)
def test_without_a_record_tensorrt_itself_says_why(
    folder: Path, changed: dict[str, str], said: str
) -> None:
    """The native backend needs none either; our engines have one."""
    engine = fake_engines.write(folder, folder.parents[1] / "g.onnx", [NARROW], **changed)
    record.beside(engine).unlink()
    with pytest.raises(EngineUnfit, match=said) as refused:
        served(folder)
    assert str(refused.value).endswith(REBUILD)
    with pytest.raises(EngineUnfit, match="nothing says what it was made of"):
        opening.opened(engine, Device("cpu"))


@pytest.mark.parametrize("garbage", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"\0x"])
def test_what_is_no_engine_is_refused(folder: Path, garbage: bytes) -> None:
    """Public case J2."""
    engine = folder / "model-cc0.0.plan"
    engine.write_bytes(garbage)
    with pytest.raises(EngineUnfit, match="not the file that was built"):
        served(folder)
    record.beside(engine).unlink()
    with pytest.raises(EngineUnfit, match="magicTag"):
        served(folder)
    engine.unlink()
    with pytest.raises(EngineUnfit, match="there is no such engine; run: python -m build tensorrt"):
        served(folder)


@pytest.mark.parametrize("module", ["torch", "tensorrt"])
def test_what_is_not_installed_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    found = devices.importlib.import_module

    def missing(name: str) -> Any:
        if name == module:
            raise ImportError(f"No module named {name!r}")
        return found(name)

    monkeypatch.setattr(devices.importlib, "import_module", missing)
    opening._toolkit.cache_clear()
    with pytest.raises(EngineUnfit, match=f"needs {module}.*; pip install"):
        served(folder)


@pytest.mark.parametrize(
    ("name", "said"), [("cuda", "PyTorch finds no GPU here"), ("tpu", "'tpu'; cuda, cuda:1")]
)
def test_a_device_that_is_not_there_is_refused(name: str, said: str) -> None:
    with pytest.raises(EngineUnfit, match=said):
        Device(name)
