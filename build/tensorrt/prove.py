"""`python -m build.tensorrt.prove graph.onnx ...`: what TensorRT-RTX makes of graphs, as JSON.

Runs in an environment of `build.tensorrt.offline`. With --build MODEL the engine of a model is
built, as its recipe says, for the compute capability --for (8.9). With --read FILE it is told why a
file is not read as an engine. With --api CLASS the names that a class has are told.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from build.errors import EngineRefused
from build.tensorrt import offline
from build.tensorrt.adapter import activation_bytes, build, parse
from build.tensorrt.arrival import complaints
from build.tensorrt.command import graph_of
from build.tensorrt.recipes import RECIPES, Recipe, open_inputs
from python_backends.tensorrt.runtime import Toolkit


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one JSON object: a report by the path of each graph, or the name of each model."""
    parser = argparse.ArgumentParser("python -m build.tensorrt.prove", description=__doc__)
    parser.add_argument("graphs", nargs="*", type=Path)
    parser.add_argument("--build", nargs="*", default=[], metavar="MODEL")
    parser.add_argument("--timing", type=Path, help="file of a timing cache to build with")
    parser.add_argument("--read", nargs="*", type=Path, default=[], metavar="FILE")
    parser.add_argument("--api", nargs="*", default=[], metavar="CLASS")
    parser.add_argument("--for", dest="capability", default="8.9")
    options = parser.parse_args(arguments)
    kit = Toolkit.of(offline.load())
    found = {str(path): parsing(kit, onnx.load(path)) for path in options.graphs}
    for model in options.build:
        found[model] = building(kit, RECIPES[model], options.capability, options.timing)
    found |= {name: {"names": dir(getattr(kit.trt, name))} for name in options.api}
    found |= {str(path): {"refused": refusal(kit, path)} for path in options.read}
    print(json.dumps(found))


def parsing(kit: Toolkit, model: onnx.ModelProto) -> dict[str, Any]:
    """How a graph arrives."""
    arrived = parse(kit, model).arrived
    return {
        "complaints": complaints(model, arrived),
        "operators": Counter(node.op_type for node in model.graph.node),
        "layers": {name: arrived.layers.count(name) for name in sorted(set(arrived.layers))},
        "masks": [one.mask and [one.mask.kind, *one.mask.shape] for one in arrived.attentions],
    }


def refusal(kit: Toolkit, path: Path) -> str:
    """Why a file is no engine; empty: it is one, and there is a GPU for it."""
    try:
        activation_bytes(kit, path.read_bytes())
    except EngineRefused as fault:
        return str(fault)
    return ""


def building(kit: Toolkit, recipe: Recipe, capability: str, timing: Path | None) -> dict[str, Any]:
    """The engine of a recipe: how its graph arrived, how large it is."""
    profiles = recipe.profiles(open_inputs(recipe.graph_path))
    graph, full = graph_of(recipe, profiles)
    parsed = parse(kit, graph)
    began = time.monotonic()
    engine = build(kit, parsed, profiles, capability=capability, timing=timing)
    return {
        "complaints": complaints(graph, parsed.arrived),
        "precision": recipe.precision,
        "nodes_in_fp32": full,
        "bytes": len(engine),
        "seconds": round(time.monotonic() - began, 1),
    }


if __name__ == "__main__":
    main()
