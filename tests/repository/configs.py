"""Every config.pbtxt of the project, parsed strictly, for the tests of this folder."""

from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

ROOT = Path(__file__).resolve().parents[2]
REPOSITORIES = ("model_repository", "ensemble")
NATIVE_BACKENDS = ("onnxruntime", "tensorrt")


def parse(path: Path) -> Any:
    """A ModelConfig message; text_format refuses unknown fields and repeated ones."""
    return text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())


@cache
def folders() -> dict[str, Path]:
    """Model name to folder, of every folder in both repositories."""
    found = [
        folder for room in REPOSITORIES for folder in (ROOT / room).iterdir() if folder.is_dir()
    ]
    return {folder.name: folder for folder in sorted(found)}


@cache
def configs() -> dict[str, Any]:
    """Folder name to its config.pbtxt."""
    return {name: parse(folder / "config.pbtxt") for name, folder in folders().items()}


def ensembles() -> list[str]:
    """Names of the pure wiring."""
    return [name for name, config in configs().items() if config.platform == "ensemble"]


def models() -> list[str]:
    """Names of the models that compute."""
    return [name for name, config in configs().items() if config.platform != "ensemble"]


def of_backend(*backends: str) -> list[str]:
    """Names of the models served by one of `backends`."""
    return [name for name in models() if configs()[name].backend in backends]


def own() -> list[str]:
    """Names of the models served by our own backends."""
    return [name for name in models() if configs()[name].backend not in NATIVE_BACKENDS]


def parameters(name: str) -> dict[str, str]:
    """A model's parameters."""
    return {key: value.string_value for key, value in configs()[name].parameters.items()}


def kind(tensor: Any) -> tuple[str, tuple[int, ...]]:
    """Data type and dimensions of an input, output or state."""
    return model_config_pb2.DataType.Name(tensor.data_type), tuple(tensor.dims)
