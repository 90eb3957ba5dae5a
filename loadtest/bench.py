"""A bench of several experiments: its command line, and the JSON that it writes."""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import Progress

from loadtest.engine.figures import Found
from loadtest.load import bars
from loadtest.seed.figures import Target
from loadtest.seed.harness import write_json

OUT = Path(__file__).parents[1] / "out" / "bench"
ROUNDS = 5

Experiment = Callable[[Path, int, Progress], Found]
"""(folder of its own files, rounds, progress) -> what it found."""

Draw = Callable[[Mapping[str, Mapping[str, Any]], Path], list[Path]]
"""(details of experiments by name, folder) -> the pictures that were written."""


@dataclass(frozen=True)
class Bench:
    """Run as `python -m loadtest.<name>`."""

    name: str
    description: str
    note: str
    """How its figures are to be read."""

    experiments: Mapping[str, Experiment]
    targets: Mapping[str, Target]
    draw: Draw

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Exit code 0 when every target is met, or all that the chosen experiments can judge."""
        chosen = self._parser().parse_args(arguments)
        rounds = 1 if chosen.quick else chosen.rounds
        folder = chosen.out / self.name
        began = time.monotonic()
        found: dict[str, Found] = {}
        with bars() as progress:
            task = progress.add_task(f"bench-{self.name}", total=len(chosen.only), told="")
            for name in chosen.only:
                progress.update(task, told=name)
                found[name] = self.experiments[name](folder, rounds, progress)
                progress.advance(task)
        result = self.result(found)
        result |= {"rounds": rounds, "seconds": round(time.monotonic() - began)}
        path = folder.with_suffix(".json")
        write_json(path, result)
        self.draw(result["detail"], folder)
        print(
            json.dumps({key: result[key] for key in ("summary", "met", "not_measured")}, indent=2)
        )
        print(f"{result['seconds']} s; {path}, pictures in {folder}")
        return 0 if all(result["met"].values()) else 1

    def result(self, experiments: Mapping[str, Found]) -> dict[str, Any]:
        """What is written as JSON: a figure that a missing peer would have given is null."""
        summary = {name: v for found in experiments.values() for name, v in found.figures.items()}
        missing = {n: why for found in experiments.values() for n, why in found.missing.items()}
        known = {name: value for name, value in summary.items() if value is not None}
        asked = {name: target for name, target in self.targets.items() if name in known}
        left = {name: _why(name, summary) for name in self.targets if name not in known}
        return {
            "experiments": list(experiments),
            "note": self.note,
            "summary": summary,
            "targets": {name: target.words for name, target in asked.items()},
            "met": {name: target.met(known[name]) for name, target in asked.items()},
            "not_measured": missing | left,
            "detail": {name: found.detail for name, found in experiments.items()},
        }

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=f"python -m loadtest.{self.name}", description=self.description
        )
        known = self.experiments
        parser.add_argument("--only", nargs="+", choices=known, default=list(known))
        parser.add_argument("--rounds", type=int, default=ROUNDS)
        parser.add_argument("--quick", action="store_true", help="one round, to see that all runs")
        parser.add_argument("--out", type=Path, default=OUT)
        return parser


def _why(target: str, summary: Mapping[str, float | None]) -> str:
    return "a peer is missing" if target in summary else "its experiment was not run"
