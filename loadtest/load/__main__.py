"""What the generator can do on this machine: `python -m loadtest.load [PEOPLE ...]`.

It speaks to a server that answers at known times, so whatever comes later is the generator's (and,
on a small machine, that server's) own. The people ask for as many turns a second as the profile's
device could ever answer.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from loadtest.load import RunSpec, run
from loadtest.load.fake_server import Script, serving
from loadtest.load.punctuality import percentile
from loadtest.load.records import OK, Turn, read_turns
from loadtest.load.summary import Summary

PEOPLE = (1, 32, 128)
TURNS_PER_S = 48.0
CHUNKS = 19
SECONDS = 6.0


def measured(people: int, out: Path) -> Sequence[str]:
    """One row of the table."""
    script = script_for(people)
    spec = RunSpec(
        f"self-{people}",
        "generator",
        "fake",
        people=people,
        seconds=SECONDS,
        ramp_s=script.total_s,
        warm_up_s=script.total_s + 1,
        out=out,
    )
    with serving(script) as address:
        folder = run(spec, address)
    summary = Summary.read(folder)
    generator = json.loads((folder / "generator.json").read_text())["generator"]
    return (
        f"{people}",
        f"{people / script.total_s:.1f}",
        f"{summary.per_s:.1f}",
        f"{summary.per_s * (CHUNKS + 1):.0f}",
        f"{generator['cpu_cores']:.2f}",
        f"{generator['late_p99_ms']:.1f} / {generator['loop_late_p99_ms']:.1f}",
        _p50_and_p99([(t.chunks_ns[-1] - t.events[-1]["end_ns"]) / 1e6 for t in answered(folder)]),
        _p50_and_p99([t.latency_ns / 1e6 - script.total_s * 1e3 for t in answered(folder)]),
    )


def answered(folder: Path) -> list[Turn]:
    """The turns that counted and were answered."""
    return [turn for turn in read_turns(folder) if turn.counted and turn.outcome == OK]


def _p50_and_p99(values: Sequence[float]) -> str:
    return f"{percentile(values, 0.5):.1f} / {percentile(values, 0.99):.1f}"


def script_for(people: int) -> Script:
    """Answers that take as long as these people need to ask for TURNS_PER_S."""
    gap_s = max(people / TURNS_PER_S / CHUNKS, 0.005)
    return Script(chunks=CHUNKS, first_s=gap_s, gap_s=gap_s)


def main(people: Sequence[int]) -> None:
    """Measure and print."""
    table = Table(title="the load generator against a server that answers at known times")
    for heading in (
        "people",
        "turns/s asked",
        "answered",
        "messages/s",
        "cores used",
        "p99 late, sends / loop, ms",
        "chunk noticed after, p50 / p99, ms",
        "answer late, p50 / p99, ms",
    ):
        table.add_column(heading)
    with tempfile.TemporaryDirectory() as out:
        for count in people:
            table.add_row(*measured(count, Path(out)))
    Console().print(table)


if __name__ == "__main__":
    main([int(count) for count in sys.argv[1:]] or PEOPLE)
