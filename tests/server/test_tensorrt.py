"""Engines on the real server, by the tensorrt stand-in and by the slot pool's `runtime: tensorrt`.

The TensorRT is the fake in tests/fake_gpu, on the CPU: outputs are those of the onnxruntime
stand-in and of ONNX Runtime's slot pool, bit by bit or token by token.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc import InferenceServerClient, InferInput, model_config_pb2
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from deploy.errors import ServerFailed
from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.stages.bound_graphs import score, vocoder_chunk
from python_backends.tensorrt import record
from python_backends.tensorrt.device import NO_GPU
from tests import fake_engines

pytestmark = pytest.mark.server

REPOSITORY = Path(__file__).parents[2] / "model_repository"
SERVED = ("acoustic_condition", "vocoder")
MODELS = [*SERVED, "prosody"]
LINES = ("Two tacos and a large Coke.", "That will be $7.50.", "Anything else?", "Hello!")
ON_DEVICE = {"runtime": "tensorrt", "device": "cpu"}
Arrays = Mapping[str, np.ndarray[Any, Any]]


def served_by_tensorrt(model: str, repository: Path) -> None:
    """A model by its configs/tensorrt.pbtxt, but on the CPU, and its engine."""
    folder = fake_engines.of_model(REPOSITORY / model / "1", repository)
    config = model_config_pb2.ModelConfig()
    text_format.Parse((REPOSITORY / model / "configs/tensorrt.pbtxt").read_text(), config)
    config.instance_group[0].kind = model_config_pb2.ModelInstanceGroup.KIND_CPU
    config.cc_model_filenames[NO_GPU] = record.engine_name(NO_GPU)
    config.parameters["device"].string_value = "cpu"
    (folder.parent / "config.pbtxt").write_text(text_format.MessageToString(config))


@contextmanager
def fake_installed(root: Path) -> Iterator[None]:
    """The stub ignores PYTHONPATH, but looks for modules in the folder that the server was started
    in."""
    room = root / "cwd"
    room.mkdir()
    (room / "tensorrt").symlink_to(fake_engines.FAKE_GPU / "tensorrt")
    (room / "python_backends").symlink_to(REPOSITORY.parent / "python_backends")
    with chdir(room):
        yield


def on_gpu(root: Path, **overrides: Any) -> Settings:
    """Settings of a server with a repository of engines."""
    repository = root / "engines"
    for model in SERVED:
        served_by_tensorrt(model, repository)
    fake_engines.of_model(REPOSITORY / "prosody_step" / "1", repository)
    fake_engines.beside_links(REPOSITORY / "prosody/1", repository / "prosody/1")
    for model in ("prosody", "prosody_step"):
        shutil.copy(REPOSITORY / model / "config.pbtxt", repository / model)
    return Settings(
        own=[repository],
        models=MODELS,
        overrides=overrides,
        out=root / "out",
    )


@pytest.fixture(scope="module")
def plain() -> Iterator[Server]:
    with Server(Settings(models=MODELS)) as running:
        yield running


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("tensorrt")
    with fake_installed(root), Server(on_gpu(root, prosody=ON_DEVICE)) as running:
        yield running


def asked(server: Server, model: str, inputs: Arrays, **options: Any) -> dict[str, Any]:
    client = InferenceServerClient(server.grpc_address)
    given = []
    for name, values in inputs.items():
        one = InferInput(name, list(values.shape), np_to_triton_dtype(values.dtype))
        one.set_data_from_numpy(values)
        given.append(one)
    answer = client.infer(model, given, **options)
    found = {one.name: answer.as_numpy(one.name) for one in answer.get_response().outputs}
    client.close()
    return found


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("model", "feeds"), [("acoustic_condition", score), ("vocoder", None)])
def test_a_stage_says_what_it_says_on_onnx_runtime(
    plain: Server, engines: Server, model: str, feeds: Any, rows: int
) -> None:
    one = (feeds or vocoder_chunk)(40)
    inputs = {name: np.concatenate([values] * rows) for name, values in one.items()}
    expected, found = (asked(server, model, inputs) for server in (plain, engines))
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_a_shape_that_no_profile_takes_is_told(engines: Server) -> None:
    inputs = vocoder_chunk(3)
    with pytest.raises(InferenceServerException) as refused:
        asked(engines, "vocoder", inputs)
    assert "tensorrt: no profile of the engine takes LATENT [1, 3, 64]" in refused.value.message()


def test_a_loop_says_the_same_on_either_runtime(plain: Server, engines: Server) -> None:
    """`prosody` opens its engine in its own process, and draws on the device."""
    assert "prosody_step" not in engines.models
    for seed, line in enumerate(LINES):
        inputs = {
            "PIECE": np.zeros((1, 3), np.int32),
            "TEXT": np.array([[line.encode()]], np.object_),
        }
        parameters = {"seed": seed, "temperature": "0.7"}
        expected, found = (
            asked(server, "prosody", inputs, request_id=f"line-{seed}", parameters=parameters)
            for server in (plain, engines)
        )
        assert expected["PROSODY"].shape[1] > 4
        np.testing.assert_array_equal(found["PROSODY"], expected["PROSODY"])


def test_a_loop_without_its_engine_says_how_it_is_built(tmp_path: Path) -> None:
    settings = on_gpu(tmp_path, prosody=ON_DEVICE)
    (tmp_path / "engines/prosody_step/1/model-cc0.0.plan").unlink()
    needed = "run: python -m build tensorrt prosody_step"
    with fake_installed(tmp_path), pytest.raises(ServerFailed, match=needed):
        Server(settings).start()
