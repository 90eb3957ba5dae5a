"""Every portable graph through the real importer and builder of TensorRT-RTX, without a GPU.

Fetches its wheels (172 MB) the first time. What is executed, and how fast, is not proved here.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from build.artifact import REPOSITORY
from build.onnx_graph import FLOAT, INT64, Graph
from build.smollm.export import CAPACITY, export_portable
from build.tensorrt import offline
from build.tensorrt.recipes import FULL, HALF, RECIPES, Recipe
from python_backends.tensorrt import runtime

pytestmark = pytest.mark.full

LIMIT_S = 600
GRAPHS = (
    "asr_encoder/portable.onnx",
    "asr_decode_step/portable.onnx",
    "prosody_step/portable.onnx",
    "prosody_step/admit.onnx",
    "acoustic_condition/model.onnx",
    "acoustic_step/model.onnx",
    "vocoder/model.onnx",
    "vad/model.onnx",
    "vad_step/model.onnx",
)
BUILT = [recipe for recipe in RECIPES.values() if recipe.model != "think_step"]
"""The LLM's graph is not exported by default, and its gates take minutes here."""

BYTES_A_WEIGHT = {HALF: 2, FULL: 4}
CODE_BYTES = 8_000_000
"""Room for kernels and for constants that profiles do not share."""

Report = Mapping[str, Any]


def at(name: str) -> Path:
    model, file = name.split("/")
    return REPOSITORY / model / "1" / file


def prove(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        offline.run("build.tensorrt.prove", list(arguments), LIMIT_S)
    )
    return found


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("think_step") / "portable.onnx"
    export_portable(path)
    return path


@pytest.fixture(scope="module")
def parsed(llm: Path) -> dict[str, Report]:
    """How every graph arrives, by its name."""
    paths = {name: str(at(name)) for name in GRAPHS} | {"think_step/portable.onnx": str(llm)}
    found = prove(*paths.values())
    return {name: found[path] for name, path in paths.items()}


@pytest.fixture(scope="module")
def timing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a timing cache that is damaged before the first engine is built."""
    path = tmp_path_factory.mktemp("timing") / "timing.cache"
    path.write_bytes(b"rubbish" * 10)
    return path


@pytest.fixture(scope="module")
def built(timing: Path) -> dict[str, Report]:
    """Engines for compute capability 8.9, by their models."""
    return prove("--timing", str(timing), "--build", *(recipe.model for recipe in BUILT))


@pytest.mark.parametrize("name", [*GRAPHS, "think_step/portable.onnx"])
def test_a_graph_arrives_as_it_was_meant(parsed: Mapping[str, Report], name: str) -> None:
    """Types of inputs and outputs, masks, pools and counts of layers: all are judged."""
    assert parsed[name]["complaints"] == []


@pytest.mark.parametrize(
    ("name", "pools", "attentions", "rotations"),
    [
        ("think_step/portable.onnx", 60, 30, 60),
        ("asr_decode_step/portable.onnx", 8, 8, 0),
        ("prosody_step/portable.onnx", 8, 4, 0),
    ],
)
def test_step_graphs_keep_their_pools_masks_and_rotations(
    parsed: Mapping[str, Report], name: str, pools: int, attentions: int, rotations: int
) -> None:
    report = parsed[name]
    assert report["operators"].get("TensorScatter") == pools
    assert report["layers"].get("KV_CACHE_UPDATE") == pools
    assert report["layers"].get("ATTENTION_INPUT") == attentions
    assert report["layers"].get("ROTARY_EMBEDDING", 0) == rotations
    assert len(report["masks"]) == attentions
    assert all(mask[0] == "BOOL" for mask in report["masks"])


def test_masks_are_as_wide_as_the_pools(parsed: Mapping[str, Report]) -> None:
    """Of Whisper every other attention is to the encoder's states, whose number varies."""
    widths = {name: [mask[-1] for mask in report["masks"]] for name, report in parsed.items()}
    assert widths["think_step/portable.onnx"] == [CAPACITY] * 30
    assert widths["prosody_step/portable.onnx"] == [512] * 4
    assert widths["asr_decode_step/portable.onnx"] == [448, -1] * 4


@pytest.mark.parametrize("recipe", BUILT, ids=lambda recipe: recipe.model)
def test_an_engine_is_built_for_the_profiles_of_its_config(
    built: Mapping[str, Report], recipe: Recipe
) -> None:
    """It holds the weights of its graph about once, in the recipe's precision."""
    report = built[recipe.model]
    assert report["complaints"] == []
    held = weights(onnx.load(recipe.graph_path)) * BYTES_A_WEIGHT[recipe.precision]
    assert 0.9 * held < report["bytes"] < 1.1 * held + CODE_BYTES


def test_the_angles_of_the_flow_decoder_and_they_alone_stay_in_fp32(
    built: Mapping[str, Report],
) -> None:
    """Its embedding of the time takes sines of up to 1000, of which fp16 keeps no fraction."""
    full = {model: report["nodes_in_fp32"] for model, report in built.items()}
    assert {"/Sin", "/Cos"} <= set(full.pop("acoustic_step"))
    assert not any(full.values())


def test_a_damaged_timing_cache_is_replaced(built: Mapping[str, Report], timing: Path) -> None:
    assert built
    assert not timing.read_bytes().startswith(b"rubbish")
    assert timing.stat().st_size > 0


def test_what_is_no_engine_is_refused_by_tensorrt_itself(tmp_path: Path) -> None:
    """Public case J2."""
    garbage = {
        "empty": b"",
        "pointer": b"version https://git-lfs.github.com/spec/v1",
        "zeros": bytes(200),
    }
    paths = {name: tmp_path / f"{name}.plan" for name in garbage}
    for name, path in paths.items():
        path.write_bytes(garbage[name])
    found = prove("--read", *map(str, paths.values()))
    for path in paths.values():
        assert "no engine that this GPU and TensorRT 1.7.1.116 read" in found[str(path)]["refused"]
    assert "magicTag" in found[str(paths["zeros"])]["refused"]


RUNTIME = {
    "Runtime": {"deserialize_cuda_engine"},
    "ICudaEngine": {
        "num_io_tensors",
        "get_tensor_name",
        "get_tensor_mode",
        "get_tensor_dtype",
        "get_tensor_shape",
        "num_optimization_profiles",
        "get_tensor_profile_shape",
        "create_execution_context",
    },
    "IExecutionContext": {
        "set_optimization_profile_async",
        "set_input_shape",
        "set_tensor_address",
        "get_tensor_shape",
        "execute_async_v3",
    },
    "TensorIOMode": {"INPUT"},
    "DataType": {"FLOAT", "HALF", "INT64", "INT32", "INT8", "UINT8", "BOOL"},
}


def test_what_the_runtime_calls_is_there() -> None:
    """`python_backends/tensorrt/runtime.py`, which no test can execute without a GPU; the fake that
    it is tried with has no more."""
    found = prove("--api", *RUNTIME)
    source = Path(runtime.__file__).read_text()
    for name, used in RUNTIME.items():
        assert used <= set(found[name]["names"]), name
        assert all(one in source for one in used)
    called = set(re.findall(r"self\._(?:engine|context)\.(\w+)", source))
    assert called == RUNTIME["ICudaEngine"] | RUNTIME["IExecutionContext"] - {
        "set_optimization_profile_async"
    }


def weights(model: onnx.ModelProto) -> int:
    """How many numbers a graph holds, as initializers or as constants."""
    constants = [
        attribute.t
        for node in model.graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
    ]
    return sum(math.prod(one.dims) for one in [*model.graph.initializer, *constants])


def attention(kind: str) -> onnx.ModelProto:
    """Attention to 16 keys, of which each row may see `start`: by a mask, or by their number."""
    made = Graph(kind)
    for name, length in (("q", 1), ("k", 16), ("v", 16)):
        made.input(name, FLOAT, ["B", 2, length, 8])
    made.input("start", INT64, ["B"])
    if kind == "lengths":
        made.op("Attention", "q", "k", "v", "", "", "", "start", out="y")
    else:
        places = made.weight("places", np.arange(16, dtype=np.int64)[None, None, None])
        own = made.op("Unsqueeze", "start", made.ints(1, 2, 3))
        made.op("Attention", "q", "k", "v", made.op("Less", places, own), out="y")
    made.output("y", FLOAT, ["B", 2, 1, 8])
    return made.model(opset=24)


def test_lengths_that_the_importer_drops_are_noticed(tmp_path: Path) -> None:
    """Public knowledge: it takes `nonpad_kv_seqlen` for an unused input. A mask arrives."""
    paths = {kind: tmp_path / f"{kind}.onnx" for kind in ("lengths", "mask")}
    for kind, path in paths.items():
        onnx.save(attention(kind), path)
    found = prove(*map(str, paths.values()))
    assert found[str(paths["mask"])]["complaints"] == []
    told = " ".join(found[str(paths["lengths"])]["complaints"])
    assert "nonpad_kv_seqlen was dropped" in told
