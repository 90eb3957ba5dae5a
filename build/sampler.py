"""The graph that finds the candidates a row of the LLM samples among."""

from collections.abc import Callable
from pathlib import Path

import onnx

from build.contract import NATIVE_IR, NATIVE_OPSET
from build.onnx_graph import FLOAT, INT64, Graph
from python_backends.slot_engine.candidates import CANDIDATES


def sampler_model() -> onnx.ModelProto:
    """`logits` [B, V] to `values` fp32 and `ids` int64 [B, CANDIDATES], best first, ties by id."""
    graph = Graph("sampler")
    logits = graph.input("logits", FLOAT, ["B", "V"])
    graph.ops("TopK", logits, graph.ints(CANDIDATES), out=["values", "ids"], axis=1)
    graph.output("values", FLOAT, ["B", CANDIDATES])
    graph.output("ids", INT64, ["B", CANDIDATES])
    return graph.model(opset=NATIVE_OPSET, ir_version=NATIVE_IR)


def export_sampler(target: Path) -> None:
    """think_step/1/sampler.onnx."""
    onnx.save(sampler_model(), target)


TARGETS: dict[tuple[str, str], Callable[[Path], None]] = {
    ("think_step", "sampler.onnx"): export_sampler,
}


def sources() -> list[Path]:
    """It has no weights."""
    return []
