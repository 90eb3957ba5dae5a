"""Tiny models for tests of the server itself: a few ONNX nodes, or a few lines of Python."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

DTYPES = {
    TensorProto.FLOAT: "TYPE_FP32",
    TensorProto.INT64: "TYPE_INT64",
    TensorProto.STRING: "TYPE_STRING",
}
Tensor = tuple[str, int, list[Any]]
"""Name, ONNX dtype, ONNX shape with the batch dim."""


def onnx_model(
    repository: Path,
    name: str,
    nodes: Sequence[Any],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    config: str = "dynamic_batching { }",
    states: Sequence[str] = (),
    constants: Sequence[Any] = (),
    ragged: bool = False,
) -> Path:
    """A model of the onnxruntime backend; `states` are tensors that config.pbtxt does not list."""
    folder = _version_folder(repository, name)
    graph = helper.make_graph(
        list(nodes),
        name,
        [helper.make_tensor_value_info(*tensor) for tensor in inputs],
        [helper.make_tensor_value_info(*tensor) for tensor in outputs],
        list(constants),
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "model.onnx")
    extra = " allow_ragged_batch: true" if ragged else ""
    text = [
        f'name: "{name}" backend: "onnxruntime" default_model_filename: "model.onnx"',
        "max_batch_size: 8 instance_group [ { kind: KIND_CPU count: 1 } ]",
        *(f"input [ {_listed(t, extra)} ]" for t in inputs if t[0] not in states),
        *(f"output [ {_listed(t)} ]" for t in outputs if t[0] not in states),
        config,
    ]
    (folder.parent / "config.pbtxt").write_text("\n".join(text))
    return folder / "model.onnx"


def python_model(repository: Path, name: str, body: str, config: str = "") -> None:
    """A python model, string X to string Y; `body` is that of its method `answer(self, x)`."""
    folder = _version_folder(repository, name)
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    (folder / "model.py").write_text(PYTHON_MODEL.replace("BODY", lines))
    (folder.parent / "config.pbtxt").write_text(
        f'name: "{name}" backend: "python" instance_group [ {{ kind: KIND_CPU count: 1 }} ]\n'
        'input [ { name: "X" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
        f'output [ {{ name: "Y" data_type: TYPE_STRING dims: [ 1 ] }} ]\n{config}'
    )


PYTHON_MODEL = """
import json, os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.parameters = {key: value["string_value"] for key, value in parameters.items()}

    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()[0].decode()
        y = np.array([self.answer(x)], dtype=np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])

    def answer(self, x):
BODY
"""


def _listed(tensor: Tensor, extra: str = "") -> str:
    name, dtype, shape = tensor
    dims = [dim if isinstance(dim, int) else -1 for dim in shape[1:]]
    return f'{{ name: "{name}" data_type: {DTYPES[dtype]} dims: {dims}{extra} }}'


def _version_folder(repository: Path, name: str) -> Path:
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    return folder
