"""`python -m loadtest.seed`: run the experiment, write out/bench/seed.json, report and plots."""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from loadtest.ledger import compare, explain
from loadtest.seed import plan
from loadtest.seed.experiment import ROOT, Experiment
from loadtest.seed.figures import result
from loadtest.seed.harness import execute, write_json
from loadtest.seed.page import with_summary

OUT = ROOT / "out" / "bench"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when all targets that the chosen runs can judge are met, 2 without any run."""
    chosen = _parser().parse_args(arguments)
    experiments = _chosen(chosen)
    if not experiments:
        print(f"no run is named {' or '.join(chosen.only)}", file=sys.stderr)
        return 2
    runs = OUT / "seed"
    shutil.rmtree(runs, ignore_errors=True)
    began = time.monotonic()
    told = execute(experiments, runs)
    found = result(told)
    found["seconds"] = round(time.monotonic() - began)
    write_json(OUT / "seed.json", found)
    _report(runs, [one.name for one in experiments], found)
    print(json.dumps({key: found[key] for key in ("summary", "met", "invalid")}, indent=2))
    print(f"{found['seconds']} s; out/bench/seed.json, out/bench/seed.html (emulated device)")
    return 0 if all(found["met"].values()) and not found["invalid"] else 1


def _report(runs: Path, names: list[str], found: Mapping[str, Any]) -> None:
    """The comparison of both curves, and the account of the runs that the seed talks about."""
    curves = [runs / name for name in names if _is_curve(name)]
    if curves:
        (OUT / "seed.html").write_text(with_summary(compare(curves), found))
    for name in ("monolith-64", "stages-64", "stages-128"):
        if name in names:
            explain(runs / name)


def _is_curve(name: str) -> bool:
    series, _, people = name.rpartition("-")
    return series in ("monolith", "stages") and people.isdigit()


def _chosen(options: argparse.Namespace) -> list[Experiment]:
    found = plan.quick() if options.quick else plan.everything()
    if options.only:
        found = [one for one in found if any(fnmatch(one.name, name) for name in options.only)]
    return [replace(one, setup=replace(one.setup, pieces=options.pieces)) for one in found]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtest.seed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the claim alone, some 2 minutes")
    parser.add_argument("--pieces", type=int, default=1, help="pieces of every answer")
    parser.add_argument("--only", nargs="+", help="runs of these names; * stands for anything")
    return parser


if __name__ == "__main__":
    sys.exit(main())
