"""The acoustic graphs against torch at the edges of their shapes; padding must change nothing."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from google.protobuf import text_format
from numpy.typing import NDArray
from tritonclient.grpc.model_config_pb2 import ModelConfig

from build.voice import weights
from build.voice.export import SOURCES, TARGETS
from build.voice.flow_decoder import CONDITION
from python_backends.diffusion_lock.frames import frame_positions
from python_backends.diffusion_lock.solver import STRIDES
from python_backends.speech import CHANNELS, PITCHES, VOICES

Array = NDArray[np.generic]
Graph = Callable[..., list[Array]]

REPOSITORY = Path(__file__).parents[2] / "model_repository"
NATIVE = ("acoustic_condition", "acoustic_step", "vocoder")
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    for model in NATIVE:
        (folder / model).mkdir()
        TARGETS[model, "model.onnx"](folder / model / "model.onnx")
    return folder


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options)


def graph(exported: Path, model: str) -> Graph:
    opened = session(exported / model / "model.onnx")

    def run(**inputs: Array) -> list[Array]:
        return list(opened.run(None, inputs))

    return run


@pytest.fixture(scope="module")
def condition(exported: Path) -> Graph:
    return graph(exported, "acoustic_condition")


@pytest.fixture(scope="module")
def step(exported: Path) -> Graph:
    return graph(exported, "acoustic_step")


def said(batch: int, phonemes: int, ticks: int, seed: int = 0) -> dict[str, Array]:
    """Inputs of acoustic_condition: `batch` rows of `phonemes` phonemes of `ticks` frames each."""
    rng = np.random.default_rng(seed)
    frame_phoneme, position = frame_positions(np.full(phonemes, ticks))
    return {
        "PHONEME": rng.integers(0, 178, (batch, phonemes)),
        "PITCH": rng.integers(0, PITCHES, (batch, phonemes)),
        "FRAME_PHONEME": np.tile(frame_phoneme, (batch, 1)),
        "FRAME_POSITION": np.tile(position, (batch, 1, 1)),
        "VOICE": rng.integers(0, len(VOICES), (batch, 1)),
        "STRIDE": rng.integers(0, STRIDES, (batch, 1)),
    }


def state(batch: int, frames: int, seed: int = 0) -> dict[str, Array]:
    """Inputs of acoustic_step, rows full."""
    rng = np.random.default_rng(seed)
    return {
        "X": rng.standard_normal((batch, frames, CHANNELS), np.float32),
        "TIME": rng.random((batch, 1), np.float32),
        "CONDITION": rng.standard_normal((batch, frames, CONDITION), np.float32),
        "LENGTH": np.full((batch, 1), frames),
    }


def in_torch(module: torch.nn.Module, inputs: dict[str, Array]) -> Array:
    with torch.inference_mode():
        return np.asarray(module(*(torch.from_numpy(a) for a in inputs.values())))


@pytest.mark.parametrize("batch", [1, 2, 8])
@pytest.mark.parametrize(("phonemes", "ticks"), [(1, 2), (7, 3), (200, 8)])
def test_the_condition_graph_equals_torch(
    condition: Graph, batch: int, phonemes: int, ticks: int
) -> None:
    """Public cases I2 and J6."""
    inputs = said(batch, phonemes, ticks)
    (found,) = condition(**inputs)
    expected = in_torch(weights.load_flow().condition, inputs)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("batch", "frames"), [(1, 1), (1, 2), (2, 33), (16, 2), (16, 101), (1, 1600)]
)
def test_the_velocity_graph_equals_torch(step: Graph, batch: int, frames: int) -> None:
    """Public cases I2, J6 and J8: least, odd and most frames."""
    inputs = state(batch, frames)
    (found,) = step(**inputs)
    np.testing.assert_allclose(found, in_torch(weights.load_flow(), inputs), atol=TOLERANCE)


@pytest.mark.parametrize("frames", [1, 2, 37, 60])
@pytest.mark.parametrize("longest", [90, 70])
def test_a_row_has_the_same_velocity_alone_and_padded(
    step: Graph, frames: int, longest: int
) -> None:
    """Public case C3: also where every row is shorter than the batch is wide."""
    inputs = state(3, 90)
    inputs["LENGTH"] = np.array([[longest], [frames], [5]])
    (together,) = step(**inputs)
    alone = {name: array[1:2] for name, array in inputs.items()}
    alone["X"], alone["CONDITION"] = alone["X"][:, :frames], alone["CONDITION"][:, :frames]
    (single,) = step(**alone)
    np.testing.assert_allclose(together[1, :frames], single[0], atol=TOLERANCE)
    assert not together[1, frames:].any()


def test_a_row_has_the_same_condition_alone_and_padded(condition: Graph) -> None:
    alone = said(1, 5, 3)
    rng = np.random.default_rng(1)
    padded = {
        **alone,
        "PHONEME": np.pad(alone["PHONEME"], ((0, 0), (0, 9))),
        "PITCH": np.pad(alone["PITCH"], ((0, 0), (0, 9)), constant_values=-1),
        "FRAME_PHONEME": np.pad(alone["FRAME_PHONEME"], ((0, 0), (0, 4)), constant_values=999),
        "FRAME_POSITION": np.concatenate(
            [alone["FRAME_POSITION"], rng.standard_normal((1, 4, 3), np.float32)], 1
        ),
    }
    (expected,), (found,) = condition(**alone), condition(**padded)
    np.testing.assert_allclose(found[:, :15], expected, atol=TOLERANCE)


@pytest.mark.parametrize("model", NATIVE)
def test_a_native_graph_has_old_standard_ops_and_the_names_of_its_configuration(
    exported: Path, model: str
) -> None:
    stored = onnx.load(exported / model / "model.onnx")
    assert stored.ir_version <= 9
    assert [(o.domain, o.version <= 18) for o in stored.opset_import] == [("", True)]
    text = (REPOSITORY / model / "config.pbtxt").read_text(encoding="utf-8")
    contract = text_format.Parse(text, ModelConfig())
    assert [i.name for i in stored.graph.input] == [i.name for i in contract.input]
    assert [o.name for o in stored.graph.output] == [o.name for o in contract.output]


def test_every_target_names_the_weights_it_is_made_from() -> None:
    assert TARGETS.keys() == SOURCES.keys()
    assert all(path.is_file() for sources in SOURCES.values() for path in sources)
