"""`make bench-engine`: the AR engine beside llama.cpp and CTranslate2, and behind the server."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from loadtest.engine.bare import ROOT
from loadtest.engine.beside import beside, shipped_chunk
from loadtest.engine.figures import Found
from loadtest.engine.plots import draw
from loadtest.engine.reuse import reuse
from loadtest.engine.served import SERVED_ROWS, gaps, served
from loadtest.engine.several import engines
from loadtest.engine.steps import steps
from loadtest.load import bars
from loadtest.seed.figures import Target, at_least, at_most
from loadtest.seed.harness import write_json

OUT = ROOT / "out" / "bench"
ROUNDS = 5
Experiment = Callable[[Path, int, Progress], Found]
"""(folder of its own files, rounds, progress) -> what it found."""

EXPERIMENTS: dict[str, Experiment] = {
    "steps": steps,
    "gap": gaps,
    "served": served,
    "beside": beside,
    "engines": engines,
    "reuse": reuse,
}
TARGETS: dict[str, Target] = {
    "tokens_per_s_by_llama_cpp_n8_c64": at_least(1.2),
    "tokens_per_s_by_llama_cpp_n8_c256": at_least(1.4),
    "tokens_per_s_by_llama_cpp_n8_c500": at_least(1.4),
    **{f"served_by_bare_n{rows}": at_least(0.9) for rows in SERVED_ROWS},
    f"beside_{shipped_chunk()}_gap_p99_by_step": at_most(2.5),
    f"beside_{shipped_chunk()}_chunks_between_steps": at_most(1),
    f"beside_{shipped_chunk()}_commands_beyond_chunks": at_most(2),
    "two_single_by_one_double": at_least(1.0),
    "reuse_turn_2_ratio": at_most(0.7),
    "reuse_same_answers": at_least(1),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every target is met, or all that the chosen experiments can judge."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.engine", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="one round, to see that all runs")
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args(arguments)
    rounds = 1 if chosen.quick else chosen.rounds
    began = time.monotonic()
    experiments: dict[str, Found] = {}
    with bars() as progress:
        task = progress.add_task("bench-engine", total=len(chosen.only), told="")
        for name in chosen.only:
            progress.update(task, told=name)
            experiments[name] = EXPERIMENTS[name](chosen.out / "engine", rounds, progress)
            progress.advance(task)
    found = result(experiments) | {"rounds": rounds, "seconds": round(time.monotonic() - began)}
    draw(found["detail"], chosen.out / "engine")
    write_json(chosen.out / "engine.json", found)
    print(json.dumps({key: found[key] for key in ("summary", "met", "not_measured")}, indent=2))
    print(
        f"{found['seconds']} s; {chosen.out / 'engine.json'}, pictures in {chosen.out / 'engine'}"
    )
    return 0 if all(found["met"].values()) else 1


def result(experiments: Mapping[str, Found]) -> dict[str, Any]:
    """What is written as JSON: a figure that a missing peer would have given is null."""
    summary = {name: v for found in experiments.values() for name, v in found.figures.items()}
    missing = {name: why for found in experiments.values() for name, why in found.missing.items()}
    known = {name: value for name, value in summary.items() if value is not None}
    asked = {name: target for name, target in TARGETS.items() if name in known}
    left = {name: _why(name, summary) for name in TARGETS if name not in known}
    return {
        "experiments": list(experiments),
        "note": "one thread, greedy; ratios are medians of each round's own ratio",
        "summary": summary,
        "targets": {name: target.words for name, target in asked.items()},
        "met": {name: target.met(known[name]) for name, target in asked.items()},
        "not_measured": missing | left,
        "detail": {name: found.detail for name, found in experiments.items()},
    }


def _why(target: str, summary: Mapping[str, float | None]) -> str:
    return "a peer is missing" if target in summary else "its experiment was not run"


if __name__ == "__main__":
    sys.exit(main())
