"""`make bench-memory`: three curves in one emulated memory, planned by peak, average and budgets.

All in virtual time and seeded: the profile's times, sizes of published models, nothing computed.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from loadtest.engine.figures import Found
from loadtest.ledger.palette import png, styled
from loadtest.load import bars
from loadtest.memory.experiment import (
    RUNS,
    SEEDS,
    SHOWN,
    SHOWN_TURNS,
    TARGETS,
    TURNS,
    Setting,
    experiment,
    usual,
)
from loadtest.memory.plots import curves
from loadtest.memory.world import CURVES
from loadtest.seed.figures import Target
from loadtest.seed.harness import write_json

OUT: Final = Path(__file__).parents[2] / "out"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every target is met."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.memory",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--turns", type=int, default=TURNS, help="of every run")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of every plan")
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args(arguments)
    began = time.monotonic()
    setting = usual()
    with bars() as progress:
        task = progress.add_task("bench-memory", total=RUNS, told="")
        found = experiment(
            setting, range(chosen.seeds), chosen.turns, lambda: progress.advance(task)
        )
    result = told(found, TARGETS) | {
        "sizes": asdict(setting.sizes),
        "lengths": asdict(setting.planned),
        "seeds": chosen.seeds,
        "detail": found.detail,
    }
    write_json(chosen.out / "memory.json", result)
    draw(setting, chosen.out / "memory.png")
    print(json.dumps({key: result[key] for key in ("summary", "met")}, indent=2))
    print(f"{time.monotonic() - began:.0f} s; memory.json and memory.png in {chosen.out}")
    return 0 if all(result["met"].values()) else 1


def told(found: Found, targets: Mapping[str, Target]) -> dict[str, Any]:
    """What is written as JSON, without the details."""
    known = {key: value for key, value in found.figures.items() if value is not None}
    return {
        "emulated": True,
        "note": "virtual time on an emulated memory: nothing is computed or allocated. "
        "turns_per_s counts answered turns; an attempt that fails costs the device nothing, "
        "which flatters planning by average",
        "summary": {key: round(value, 4) for key, value in known.items()},
        "targets": {key: target.words for key, target in targets.items()},
        "met": {key: target.met(known[key]) for key, target in targets.items()},
    }


def draw(setting: Setting, path: Path) -> None:
    """Some seconds of the plans that are compared."""
    plans = setting.plans(SHOWN)
    runs = {name: setting.play(plan, 0, SHOWN_TURNS, sampled=True) for name, plan in plans.items()}
    with styled():
        path.write_bytes(png(curves(runs, CURVES, setting.sizes.device)))


if __name__ == "__main__":
    sys.exit(main())
