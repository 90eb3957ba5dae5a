"""Which nodes of an ONNX graph are run with given inputs, of which shapes, and how long each takes.

ONNX Runtime's own profile of one run tells it, inside branches too, so that no shape is guessed.
"""

import json
import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from numpy.typing import NDArray

from loadtest.stages.onnx_cost import Cost, Executed, Shape, Tensors, cost_of

Feeds = Mapping[str, NDArray[Any]]
KERNEL = "_kernel_time"
WARM_UPS = 1


def cost(model: onnx.ModelProto, feeds: Feeds, starts: tuple[int, ...] = ()) -> Cost:
    """Of one run of `model`, whose nodes get names of their own; `starts` as in Tensors."""
    nodes = dict(_named(model.graph))
    ran = profile(model.SerializeToString(), feeds, optimise=False)
    shapes: dict[str, Shape] = {name: values.shape for name, values in feeds.items()}
    stored = {name: values.nbytes for name, values in feeds.items()}
    for name, tensor in _weights(model.graph):
        shapes[name] = tuple(tensor.dims)
        stored[name] = _nbytes(tensor.data_type, shapes[name])
    executed = []
    for event in ran:
        node = nodes[event["name"].removesuffix(KERNEL)]
        outputs = [name for name in node.output if name]
        told = [_shape(one) for one in event["args"]["output_type_shape"]]
        shapes |= dict(zip(outputs, told, strict=True))
        executed.append(_executed(node))
    results = {out.name: out.type.tensor_type.elem_type for out in model.graph.output}
    stored |= {name: _nbytes(kind, shapes[name]) for name, kind in results.items()}
    return cost_of(executed, Tensors(shapes, stored, pools(feeds, results), starts))


def pools(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> frozenset[str]:
    """Inputs k0, v0, ... that come out as ko0, vo0, ..., and these."""
    pairs = {name: f"{name[0]}o{name[1:]}" for name in inputs if name[1:].isdigit()}
    return frozenset(name for pair in pairs.items() if pair[1] in outputs for name in pair)


def time_by_operator(model: bytes, feeds: Feeds) -> dict[str, float]:
    """Share of a run's kernel time by operator, as a session fuses them, largest first."""
    took: Counter[str] = Counter()
    for event in profile(model, feeds, optimise=True):
        took[event["args"]["op_name"]] += event["dur"]
    return {op: dur / took.total() for op, dur in took.most_common()}


def profile(model: bytes, feeds: Feeds, *, optimise: bool) -> list[dict[str, Any]]:
    """The kernels of one run, in order, the ones before it untold."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if not optimise:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_profiling = True
    with tempfile.TemporaryDirectory(prefix="tristage-profile-") as folder:
        options.profile_file_prefix = str(Path(folder) / "run")
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for _ in range(WARM_UPS + 1):
            session.run(None, dict(feeds))
        events = json.loads(Path(session.end_profiling()).read_text())
    kernels = [one for one in events if one.get("name", "").endswith(KERNEL)]
    return kernels[len(kernels) * WARM_UPS // (WARM_UPS + 1) :]


def _named(graph: onnx.GraphProto, prefix: str = "n") -> Iterator[tuple[str, onnx.NodeProto]]:
    """Every node, those of branches too, under a new name that no other one has."""
    for number, node in enumerate(graph.node):
        node.name = f"{prefix}{number}"
        yield node.name, node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _named(attribute.g, f"{node.name}_{attribute.name}_")


def _weights(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Name -> initialiser, or tensor of a Constant node, branches included."""
    yield from ((one.name, one) for one in graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.type == onnx.AttributeProto.TENSOR:
                yield node.output[0], attribute.t
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _weights(attribute.g)


def _executed(node: onnx.NodeProto) -> Executed:
    plain = {
        one.name: onnx.helper.get_attribute_value(one)
        for one in node.attribute
        if one.type in (onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT)
    }
    return Executed(node.op_type, tuple(node.input), tuple(node.output), plain)


def _shape(told: Mapping[str, list[int]]) -> Shape:
    """Of {"float": [1, 80, 3000]}."""
    (dims,) = told.values()
    return tuple(dims)


def _nbytes(data_type: int, shape: Shape) -> int:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(data_type)
    return int(math.prod(shape) * dtype.itemsize)
