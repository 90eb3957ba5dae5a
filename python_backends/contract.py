"""What config.pbtxt declares beside what an artefact has."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Tensors = Mapping[str, tuple[str, Sequence[Any]]]
"""Name to Triton's data type and shape; a dimension that varies is no positive number."""


class ArtefactRefused(Exception):
    """The artefact cannot be served; the message says why and what to do."""


def states(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The `state { }` entries of a config."""
    return list((config.get("sequence_batching") or {}).get("state", []))


def require_fit(config: Mapping[str, Any], inputs: Tensors, outputs: Tensors) -> None:
    """ArtefactRefused with one line per difference between config.pbtxt and the artefact."""
    kept = states(config)
    wanted_inputs = [*config["input"], *({**s, "name": s["input_name"]} for s in kept)]
    wanted_outputs = [*config["output"], *({**s, "name": s["output_name"]} for s in kept)]
    batched = config["max_batch_size"] > 0
    differences = [
        *_differences("input", wanted_inputs, inputs, batched),
        *_differences("output", wanted_outputs, outputs, batched),
    ]
    if differences:
        lines = "\n  ".join(differences)
        raise ArtefactRefused(
            f"config.pbtxt of {config['name']!r} does not fit its graph:\n  {lines}"
        )


def _differences(
    kind: str, wanted: list[dict[str, Any]], present: Tensors, batched: bool
) -> Iterator[str]:
    declared = {tensor["name"]: _declared(tensor, batched) for tensor in wanted}
    for name in sorted(declared.keys() | present.keys()):
        if name not in present:
            yield f"{kind} {name}: in config.pbtxt, not in the graph"
        elif name not in declared:
            yield f"{kind} {name}: in the graph, not in config.pbtxt"
        elif not _fits(declared[name], present[name]):
            yield f"{kind} {name}: config {declared[name]}, graph {present[name]}"


def _declared(tensor: Mapping[str, Any], batched: bool) -> tuple[str, list[int]]:
    """Dims of states come as strings in the server's JSON."""
    return tensor["data_type"], [-1] * batched + [int(dim) for dim in tensor["dims"]]


def _fits(declared: tuple[str, list[int]], present: tuple[str, Sequence[Any]]) -> bool:
    """Same dtype and rank; a fixed dim of the graph is the same number in the config."""
    if declared[0] != present[0] or len(declared[1]) != len(present[1]):
        return False
    pairs = zip(declared[1], present[1], strict=True)
    return all(not isinstance(graph, int) or graph in (-1, config) for config, graph in pairs)
