"""`make chaos`: everything goes wrong on purpose; `make soak`: for a long time nothing does.

All but the hostile requests and the byte budgets is on the emulated device: it takes the profile's
time and computes nothing, so what is shown is the server's and the schedulers' doing.
"""

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

from rich.progress import Progress

from deploy.errors import ServerFailed
from loadtest.chaos.budgets import STEPS as BUDGETS
from loadtest.chaos.budgets import budgets
from loadtest.chaos.hostile import FILES, REQUESTS, hostile
from loadtest.chaos.kills import KILLS, kills, stops
from loadtest.chaos.overload import CROWDS, overload
from loadtest.chaos.soak import soak
from loadtest.chaos.stand import STAGES, standing
from loadtest.chaos.storm import TURNS, storm
from loadtest.engine.figures import Found
from loadtest.load import bars
from loadtest.seed.figures import Target, at_least, at_most
from loadtest.seed.harness import write_json

OUT: Final = Path(__file__).parents[2] / "out"
MODELS: Final = len(STAGES) + 1

NEVER: Final = at_most(0)
ALWAYS: Final = at_least(1)
SERVER_BACK_S: Final = 15.0
"""Where a killed stage took the server along, which happens once in 100 times."""

CHAOS: Final[Mapping[str, Target]] = {
    "storm_turns": at_least(TURNS),
    "storm_not_answered_once": NEVER,
    "storm_cross_talk": NEVER,
    "storm_untyped_errors": NEVER,
    "storm_patient_answered_share": ALWAYS,
    "storm_leaks": NEVER,
    "storm_shm_growth_mb": at_most(1),
    "killed_not_answered_once": NEVER,
    "killed_cross_talk": NEVER,
    "killed_untyped_errors": NEVER,
    "killed_lost_inside": at_least(1),
    "killed_refused_without_retry": NEVER,
    "killed_past_turns": at_least(1),
    "killed_past_answered_share": ALWAYS,
    "killed_past_by_quiet_p95": at_most(1.5),
    "killed_back_s_max": at_most(5),
    "killed_open_at_door": at_least(1),
    "killed_door_told_s_max": at_most(1),
    "killed_leaks": NEVER,
    "killed_server_back_s_max": at_most(SERVER_BACK_S),
    "killed_unreachable_for_no_reason": NEVER,
    "stopped_not_answered_once": NEVER,
    "stopped_untyped_errors": NEVER,
    "stopped_past_answered_share": ALWAYS,
    "stopped_back_s_max": at_most(15),
    "stopped_leaks": NEVER,
    "stopped_unreachable_for_no_reason": NEVER,
    "overload_goodput_by_best": at_least(0.9),
    "overload_not_answered_once": NEVER,
    "overload_untyped_errors": NEVER,
    "overload_refusal_ms_p99": at_most(50),
    "overload_refusals_without_reason": NEVER,
    "overload_rss_growth_share": at_most(0.05),
    "overload_normal_again_s": at_most(5),
    "overload_leaks": NEVER,
    "hostile_requests": at_least(REQUESTS),
    "hostile_crashes": NEVER,
    "hostile_hangs": NEVER,
    "hostile_wrong_codes": NEVER,
    "hostile_told_secrets": NEVER,
    "hostile_good_requests": at_least(1),
    "hostile_good_spoilt": NEVER,
    "hostile_files": at_least(FILES),
    "hostile_files_untyped": NEVER,
    "bytes_refused_before_load": ALWAYS,
    "bytes_over_budget_failed_alone": ALWAYS,
    "bytes_measured_by_declared_min": at_least(0.7),
    "bytes_measured_by_declared_max": at_most(1),
    "bytes_left_at_rest": NEVER,
    "dead_turns_at_last": NEVER,
    "parts_broken_off": NEVER,
    "seconds": at_most(900),
}
SOAK: Final[Mapping[str, Target]] = {
    "soak_not_answered_once": NEVER,
    "soak_failed_turns": NEVER,
    "soak_rss_growth_share": at_most(0.03),
    "soak_shm_growth_mb": at_most(1),
    "soak_last_by_first_minute": at_least(0.97),
    "soak_leaks": NEVER,
}

Part = Callable[[Random, Callable[[int], None]], Found]
STEPS: Final[Mapping[str, int]] = {
    "storm": TURNS,
    "kills": KILLS * MODELS,
    "stops": MODELS,
    "overload": len(CROWDS) + 1,
    "hostile": REQUESTS,
    "budgets": BUDGETS,
}
"""What a part counts while it runs."""

EMULATED: Final = {"storm": storm, "kills": kills, "stops": stops, "overload": overload}
REAL: Final = {"hostile": hostile, "budgets": budgets}
"""Parts with a server of their own, which has real weights."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every target is met, or all that the chosen parts can judge."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.chaos",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--soak", action="store_true", help="SOAK_MIN minutes of load instead")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    chosen = parser.parse_args(arguments)
    print(f"seed {chosen.seed}")
    began = time.monotonic()
    if chosen.soak:
        found, targets, name = {"soak": _soaked()}, SOAK, "soak"
    else:
        found, targets, name = _parts(chosen.only, chosen.seed), CHAOS, "chaos"
    summary = {key: value for one in found.values() for key, value in one.figures.items()}
    if name == "chaos":
        summary["seconds"] = round(time.monotonic() - began)
    result = told(summary, targets) | {
        "seed": chosen.seed,
        "detail": {part: one.detail for part, one in found.items()},
    }
    write_json(OUT / f"{name}.json", result)
    print(json.dumps({key: result[key] for key in ("summary", "met", "not_measured")}, indent=2))
    print(f"{time.monotonic() - began:.0f} s; out/{name}.json (seed {chosen.seed})")
    return 0 if all(result["met"].values()) else 1


def told(summary: Mapping[str, float | None], targets: Mapping[str, Target]) -> dict[str, Any]:
    """What is written as JSON, without the details."""
    known = {key: value for key, value in summary.items() if value is not None}
    asked = {key: target for key, target in targets.items() if key in known}
    return {
        "emulated": True,
        "note": "on an emulated device, which takes the profile's time and computes nothing; the "
        "hostile requests go to the real weights, and bytes are measured on them",
        "summary": dict(summary),
        "targets": {key: target.words for key, target in asked.items()},
        "met": {key: target.met(known[key]) for key, target in asked.items()},
        "not_measured": sorted(targets.keys() - asked.keys()),
    }


def _parts(names: Sequence[str], seed: int) -> dict[str, Found]:
    found: dict[str, Found] = {}
    broken: dict[str, str] = {}
    with bars() as progress, standing(OUT) as stand:
        for name in names:
            advance = partial(progress.advance, _bar(progress, name))
            try:
                if name in REAL:
                    found[name] = REAL[name](Random(seed), advance)
                else:
                    found[name] = EMULATED[name](stand, Random(seed), advance)
            except Exception:  # a server that is gone, and what others find is not lost with it
                broken[name] = traceback.format_exc()
        try:
            left = stand.dead_turns_at_last()
            found["end"] = Found({"dead_turns_at_last": float(sum(left.values()))}, {"dead": left})
        except ServerFailed:
            broken["end"] = traceback.format_exc()
    found["parts"] = Found({"parts_broken_off": float(len(broken))}, broken)
    return found


def _bar(progress: Progress, name: str) -> Any:
    return progress.add_task(name, total=STEPS[name], told="")


def _soaked() -> Found:
    minutes = float(os.environ.get("SOAK_MIN", "15"))
    with bars() as progress, standing(OUT) as stand:
        task = progress.add_task("soak", total=round(60 * minutes), told="")
        return soak(stand, 60 * minutes, partial(progress.advance, task))


if __name__ == "__main__":
    sys.exit(main())
