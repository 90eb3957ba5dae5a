"""`make bench-apart`: one server against three; scaled, broken, mended. On an emulated device."""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from loadtest.apart import experiments
from loadtest.apart.hosts import two_hosts
from loadtest.apart.transfer import transferred
from loadtest.load import bars
from loadtest.seed.figures import Target, at_least, at_most, between
from loadtest.seed.harness import write_json

OUT = Path(__file__).parents[2] / "out" / "bench"
Experiment = Callable[[Path, Progress], Mapping[str, float]]
EXPERIMENTS: dict[str, Experiment] = {
    "together": experiments.together_and_apart,
    "scaled": experiments.scaled,
    "broken": experiments.broken,
    "drained": experiments.drained,
    "transferred": transferred,
    "hosts": two_hosts,
}
FORETOLD = between(0.85, 1.15)
TARGETS: dict[str, Target] = {
    "same_answers": at_least(1),
    "three_by_one_throughput_64": at_least(0.95),
    "added_first_audio_ms_p50": at_most(10),
    "spans_off_client_latency_ms_p95": at_most(5),
    "added_transport_ms": at_most(15),
    "one_and_three_failed_turns": at_most(0),
    "encoder_apart_turns_by_predicted": FORETOLD,
    "encoder_apart_ttfa_p95_by_predicted": FORETOLD,
    "second_speak_turns_by_predicted": FORETOLD,
    "second_speak_ttfa_p95_by_predicted": FORETOLD,
    "scaled_failed_turns": at_most(0),
    "killed_turns_hit": at_least(1),
    "killed_turns_beyond_think": at_least(1),
    "killed_noticed_s": at_most(1),
    "killed_untyped_failures": at_most(0),
    "killed_back_s": at_most(5),
    "killed_beyond_think_answered_share": at_least(1),
    "killed_encoder_passes_meanwhile": at_least(1),
    "killed_other_servers_lost": at_most(0),
    "stopped_turns_hit": at_least(1),
    "stopped_noticed_s": at_most(3),
    "stopped_untyped_failures": at_most(0),
    "stopped_turns_beyond_think": at_least(1),
    "stopped_beyond_think_answered_share": at_least(1),
    "stopped_encoder_passes_meanwhile": at_least(1),
    "stopped_other_servers_lost": at_most(0),
    "replica_added_and_removed_under_load": at_least(1),
    "replica_turns_served": at_least(1),
    "replica_failed_turns": at_most(0),
    "shared_by_sent_hidden": at_most(0.9),
    "plain_link_answered_share": at_least(1),
    "slow_link_answered_share": at_least(1),
    "lossy_link_answered_share": at_least(1),
    "lossy_link_packets_lost": at_least(1),
    "plain_link_spans_outside_turn_ms": at_most(5),
    "cut_link_noticed_s": at_most(3),
    "cut_link_failed_typed_share": at_least(1),
    "healed_link_answered": at_least(1),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every target is met, or all that the chosen experiments can judge."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.apart", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    chosen = parser.parse_args(arguments).only
    runs = OUT / "apart"
    if chosen == list(EXPERIMENTS):
        shutil.rmtree(runs, ignore_errors=True)
    began = time.monotonic()
    summary: dict[str, float] = {}
    with bars() as progress:
        task = progress.add_task("bench-apart", total=len(chosen), told="")
        for name in chosen:
            progress.update(task, told=name)
            summary |= EXPERIMENTS[name](runs, progress)
            progress.advance(task)
    took = {"experiments": chosen, "seconds": round(time.monotonic() - began)}
    found = result(summary) | took
    write_json(OUT / "apart.json", found)
    print(json.dumps(found, indent=2))
    print(f"{found['seconds']} s; out/bench/apart.json (emulated device)")
    whole = chosen != list(EXPERIMENTS) or not found["not_measured"]
    return 0 if all(found["met"].values()) and whole else 1


def result(summary: Mapping[str, float]) -> dict[str, Any]:
    """What is written as JSON."""
    asked = {name: target for name, target in TARGETS.items() if name in summary}
    return {
        "emulated": True,
        "note": "all of it on an emulated device: it takes the profile's time, computes nothing",
        "summary": dict(summary),
        "targets": {name: target.words for name, target in asked.items()},
        "met": {name: target.met(summary[name]) for name, target in asked.items()},
        "not_measured": sorted(TARGETS.keys() - summary.keys()),
    }


if __name__ == "__main__":
    sys.exit(main())
