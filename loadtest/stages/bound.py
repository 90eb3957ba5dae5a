"""What each graph achieves of what this machine can do, and what each stage is bound by.

Everything bare is run on one thread of one core, in turns, in one run with the ceilings. Rates are
of each round's median; a ceiling is the best of all rounds.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import onnx
from rich.progress import Progress

from loadtest.engine.cores import pinned
from loadtest.engine.figures import Found, rotated
from loadtest.seed.figures import Target, at_most
from loadtest.stages.bound_graphs import Case, cases
from loadtest.stages.bound_host import Host, host
from loadtest.stages.ceilings import Machine
from loadtest.stages.onnx_cost import KINDS, Cost
from loadtest.stages.onnx_run import cost, time_by_operator
from loadtest.stages.roofline import GIGA, Ceilings, Point, bound_by

HOST_ROUNDS = 5
"""Calls of each stage at least: a call is short, and the machine has other work."""

OPERATORS = 3
LEADING: Mapping[str, str] = {
    "encode": "asr_encoder_1500",
    "asr_decode": "asr_decode_step_n1",
    "think": "think_step_n1_c256",
    "prosody": "prosody_step_n1",
    "acoustic": "acoustic_step_160",
    "vocoder": "vocoder_90",
    "vad": "vad",
}
"""Stage -> the graph that a lone caller's time in it goes to, whose roof is the stage's."""

TARGETS: dict[str, Target] = {"bound_uncounted_operators": at_most(0)}


def bound(folder: Path, rounds: int, progress: Progress) -> Found:
    """Costs of all graphs, their times and the ceilings in turns, then the served stages."""
    with pinned():
        every, machine = cases(), Machine()
        task = progress.add_task("bound", total=len(every) + rounds, told="")
        costs: dict[str, Cost] = {}
        operators: dict[str, dict[str, float]] = {}
        for one in every:
            progress.update(task, told=f"operations of {one.name}")
            model = onnx.load(str(one.path))
            costs[one.name] = cost(model, one.feeds, one.starts)
            operators[one.name] = time_by_operator(model.SerializeToString(), one.feeds)
            progress.advance(task)
        took: dict[str, list[float]] = {one.name: [] for one in every}
        for number in range(rounds):
            progress.update(task, told=f"round {number + 1}")
            machine.round()
            for one in rotated(every, number):
                took[one.name].append(one.time_s())
            progress.advance(task)
    ceilings = machine.ceilings
    points = {name: Point(costs[name], median(seconds), ceilings) for name, seconds in took.items()}
    served = host(max(HOST_ROUNDS, rounds), progress)
    return Found(
        ceiling_figures(ceilings) | graph_figures(points) | stage_figures(served),
        {
            "graphs": {name: told(point, operators[name]) for name, point in points.items()},
            "stages": stages_told(served, points),
            "uncounted": uncounted(points),
            "ceilings_per_s": machine.best,
            "ceilings": ceilings_told(ceilings),
            "artefacts": artefacts(every),
            "table": table(points, served),
        },
    )


def ceiling_figures(ceilings: Ceilings) -> dict[str, float | None]:
    """10^9 operations/s and bytes/s at most."""
    return {
        **{
            f"bound_peak_{kind.replace(' ', '_')}_gflop_per_s": ceilings.operations[kind] / GIGA
            for kind in KINDS
        },
        "bound_peak_memory_gbyte_per_s": ceilings.memory / GIGA,
        "bound_peak_cache_gbyte_per_s": ceilings.cache / GIGA,
    }


def graph_figures(points: Mapping[str, Point]) -> dict[str, float | None]:
    """Of every graph; int8 operations count as fp32 ones do in what is achieved."""
    found: dict[str, float | None] = {"bound_uncounted_operators": len(uncounted(points))}
    for name, point in points.items():
        found |= {
            f"bound_{name}_ms": 1e3 * point.seconds,
            f"bound_{name}_gflop_per_s": point.per_s / GIGA,
            f"bound_{name}_gbyte_per_s": point.bytes_per_s / GIGA,
            f"bound_{name}_flop_per_byte": point.cost.intensity,
            f"bound_{name}_share_of_compute": point.share_of_compute,
            f"bound_{name}_share_of_memory": point.share_of_memory,
        }
    return found


def stage_figures(served: Host) -> dict[str, float | None]:
    """ms of a lone call beyond the stage's graphs, and in them."""
    found: dict[str, float | None] = {"bound_probe_ms": served.probe_ms}
    for stage, times in served.stages.items():
        found[f"bound_{stage}_host_ms"] = times.host_ms
        found[f"bound_{stage}_compute_ms"] = times.compute_ms
    return found


def uncounted(points: Mapping[str, Point]) -> dict[str, list[str]]:
    """Operator that is on no list -> the graphs that run it."""
    found: dict[str, list[str]] = {}
    for name, point in points.items():
        for op in point.cost.uncounted:
            found.setdefault(op, []).append(name)
    return found


def told(point: Point, operators: Mapping[str, float]) -> dict[str, Any]:
    """For readers and the plot."""
    return {
        "bound": str(point.bound),
        "kind": point.kind,
        "ms": 1e3 * point.seconds,
        "operations": dict(point.cost.operations),
        "bytes": point.cost.nbytes,
        "flop_per_byte": point.cost.intensity,
        "per_s": point.per_s,
        "fits_in_cache": point.fits_in_cache,
        "share_of_compute": point.share_of_compute,
        "share_of_memory": point.share_of_memory,
        "kernel_time_by_operator": dict(list(operators.items())[:OPERATORS]),
    }


def stages_told(served: Host, points: Mapping[str, Point]) -> dict[str, dict[str, Any]]:
    """What each stage is bound by, and what that was made of."""
    found: dict[str, dict[str, Any]] = {}
    for stage, times in served.stages.items():
        point = points[LEADING[stage]]
        word = bound_by(
            point.share_of_compute,
            point.share_of_memory,
            host_ms=times.host_ms,
            compute_ms=times.compute_ms,
        )
        found[stage] = {
            "bound": str(word),
            "graph": LEADING[stage],
            "call_ms": times.call_ms,
            "graph_ms": times.graph_ms,
            "commands": served.steps.get(stage),
        }
    return found


def ceilings_told(ceilings: Ceilings) -> dict[str, Any]:
    """What the plot draws."""
    return {
        "operations": dict(ceilings.operations),
        "memory": ceilings.memory,
        "cache": ceilings.cache,
        "cache_bytes": ceilings.cache_bytes,
    }


def artefacts(every: Sequence[Case]) -> dict[str, str]:
    """Model -> sha256 of the graph that was measured, as its provenance says."""
    paths = {one.model: one.path.with_name("model.onnx.json") for one in every}
    return {model: json.loads(path.read_text())["sha256"] for model, path in paths.items()}


def table(points: Mapping[str, Point], served: Host) -> list[str]:
    """Two tables in Markdown, line by line."""
    lines = [
        "| graph | ms | GFLOP/s | GB/s | FLOP/byte | of compute | of memory | cached | bound by |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, point in points.items():
        lines.append(
            f"| `{name}` | {1e3 * point.seconds:.2f} | {point.per_s / GIGA:.1f} {point.kind} "
            f"| {point.bytes_per_s / GIGA:.1f} | {point.cost.intensity:.1f} "
            f"| {point.share_of_compute:.0%} | {point.share_of_memory:.0%} "
            f"| {'yes' if point.fits_in_cache else 'no'} | {point.bound} |"
        )
    lines += ["", "| stage, lone call | graphs ms | host ms | bound by |", "|---|---|---|---|"]
    for stage, about in stages_told(served, points).items():
        times = served.stages[stage]
        lines.append(
            f"| `{stage}` | {times.compute_ms:.2f} | {times.host_ms:.2f} | {about['bound']} |"
        )
    return lines
