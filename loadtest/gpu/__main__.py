"""`python -m loadtest.gpu test|bench|present`: what the portable graphs are worth on a GPU.

Where there is none it says so in one line, writes "not run" and succeeds. --rehearse runs the same
on the CPU, which tries this program and nothing else. Under 8 minutes; what did not fit is told.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import onnx

from loadtest.gpu import slots
from loadtest.gpu.graphs import Case, Running, cases, worst_error
from loadtest.gpu.machine import Busy, Machine, Rates, found, one_stream, rates
from loadtest.seed.harness import write_json
from loadtest.stages.ceilings import timed_s
from loadtest.stages.onnx_run import cost

OUT = Path(__file__).parents[2] / "out" / "bench" / "gpu.json"
LIMIT_S = 420.0
TOLERANCE = 2e-3
"""Of fp32 beside fp32, summed in another order."""

MS = 1e3
FIRST_AUDIO: tuple[tuple[str, int], ...] = (
    ("asr_encoder_1500", 1),
    ("asr_decode_step_n1_t16_c0", 1),
    ("asr_decode_step_n1_t1_c32", 16),
    ("think_step_n1_t16_c0", 4),
    ("think_step_n1_t1_c32", 12),
    ("prosody_step_n1_t16_c0", 1),
    ("prosody_step_n1_t1_c32", 24),
    ("acoustic_condition_160", 1),
    ("acoustic_step_160", 4),
    ("vocoder_34", 1),
)
"""Graph runs, one after the other, from a window of sound to the first chunk of an answer."""

Result = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when a graph is wrong, or for `present` when there is no GPU."""
    parser = argparse.ArgumentParser("python -m loadtest.gpu", description=__doc__)
    parser.add_argument("task", choices=("test", "bench", "present"))
    parser.add_argument("--rehearse", action="store_true", help="on the CPU")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    machine = Machine.rehearsal() if options.rehearse else found()
    if options.task == "present":
        return int(isinstance(machine, str))
    if isinstance(machine, str):
        print(f"{options.task}-gpu not run: {machine}")
        _write(options.out, options.task, {"status": "not run", "reason": machine})
        return 0
    until = time.monotonic() + LIMIT_S
    result = (parity if options.task == "test" else bench)(machine, until)
    status = "rehearsed on the CPU" if options.rehearse else "run"
    _write(options.out, options.task, {"status": status, "machine": machine.name, **result})
    print(json.dumps(result, indent=1))
    return int(bool(result.get("wrong")))


def parity(machine: Machine, until: float) -> Result:
    """Every graph at every size beside the CPU."""
    errors, left_out = {}, []
    for case in cases():
        if not case.there or time.monotonic() > until:
            left_out.append(case.name)
        else:
            errors[case.name] = worst_error(case, machine)
    wrong = [name for name, error in errors.items() if not error <= TOLERANCE]
    rows = slots.parity(machine.device)
    return {
        "tolerance": TOLERANCE,
        "wrong": wrong + slots.wrong(rows),
        "left_out": left_out,
        "errors": errors,
        "slot_pools": rows,
    }


def bench(machine: Machine, until: float) -> Result:
    """Times of usual sizes beside their floors, the way to first audio, streams."""
    usual = {case.name: case for case in cases() if case.usual}
    left_out = [name for name, case in usual.items() if not case.there]
    there = {name: case for name, case in usual.items() if case.there}
    reached = rates(machine)
    with Busy() as busy:
        running = {name: Running(case, machine, machine.options) for name, case in there.items()}
        steps = {}
        for name, case in there.items():
            if time.monotonic() > until:
                left_out.append(name)
            else:
                steps[name] = _step(case, median(timed_s(running[name], 0.5)), reached)
        first = _first_audio(running)
        streams = _streams(there, machine)
    return {
        "measured": {"bytes_per_s": reached.bytes_per_s, "operations_per_s": reached.operations},
        "busy_percent": busy.percent,
        "steps": steps,
        "first_audio": first,
        "streams": streams,
        "slot_pools": slots.bench(machine.device),
        "left_out": left_out,
    }


def _step(case: Case, seconds: float, reached: Rates) -> Result:
    """Floor: bytes of weights, inputs, outputs and pools over the bandwidth, or multiplications
    over their rate, whichever is longer."""
    needed = cost(onnx.load(case.path), case.feeds)
    pools = sum(value.nbytes for name, value in case.feeds.items() if name[1:].isdigit())
    floor = reached.floor_s(needed.total, needed.nbytes + pools, "fp32")
    return {"ms": seconds * MS, "floor_ms": floor * MS, "of_floor": floor / seconds}


def _first_audio(running: Mapping[str, Callable[[], None]]) -> Result:
    """Graphs alone, without a server: a bound from below."""
    missing = sorted({name for name, _ in FIRST_AUDIO} - running.keys())
    steps = [(name, count) for name, count in FIRST_AUDIO if name in running]

    def walk() -> None:
        for name, count in steps:
            for _ in range(count):
                running[name]()

    return {"ms": median(timed_s(walk, 1.0)) * MS, "without": missing}


def _streams(there: Mapping[str, Case], machine: Machine) -> Result:
    """Decode steps and flow steps, each alone, and both at once: on a stream each, and on one."""
    names = [name for name in there if name.startswith(("think_step_n8", "asr_decode_step_n8"))]
    pair = [there[names[-1]], there["acoustic_step_160"]]
    own = [Running(case, machine, machine.options) for case in pair]
    alone = [median(timed_s(one, 0.5)) * MS for one in own]
    apart = _together(own)
    with one_stream(machine) as options:
        shared = _together([Running(case, machine, options) for case in pair])
    return {
        case.name: {"alone_ms": a, "own_streams_ms": b, "one_stream_ms": c}
        for case, a, b, c in zip(pair, alone, apart, shared, strict=True)
    }


def _together(works: Sequence[Callable[[], None]]) -> list[float]:
    """Milliseconds a run of each while all of them run again and again."""
    took: list[list[float]] = [[] for _ in works]

    def run(place: int) -> None:
        took[place] = timed_s(works[place], 1.0)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [median(one) * MS for one in took]


def _write(path: Path, task: str, result: Result) -> None:
    """Put it beside what the other task has found."""
    try:
        held = json.loads(path.read_text())
    except (OSError, ValueError):
        held = {}
    write_json(path, {**held, task: result})


if __name__ == "__main__":
    sys.exit(main())
