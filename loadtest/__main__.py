"""python -m loadtest: put load on a running server, or explain a run."""

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from loadtest.load import GeneratorFailed, RunSpec, run
from loadtest.load.spec import ROOT, RUNS, recordings
from loadtest.load.summary import Summary

REAL_MODEL, LIVE_MODEL = "turn", "live"
ADDRESS = "127.0.0.1:8001"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 2 when the input was wrong or the generator broke."""
    chosen = _parser().parse_args(arguments)
    action: Callable[[argparse.Namespace], None] = chosen.action
    try:
        action(chosen)
    except (ValueError, OSError, GeneratorFailed) as fault:
        print(f"{fault}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtest", description=__doc__)
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _add_run(actions.add_parser("run", help="speak turns to a server and write down how it fared"))
    explain = actions.add_parser("explain", help="where the time of a run went")
    explain.add_argument("run", type=Path, metavar="RUN", help="a folder, or a name in out/runs")
    explain.set_defaults(action=_explain)
    summary = actions.add_parser("summary", help="what the callers of a run got")
    summary.add_argument("run", type=Path, metavar="RUN", help="a folder, or a name in out/runs")
    summary.set_defaults(action=lambda chosen: _summarise(_folder(chosen.run)))
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--address", default=ADDRESS, help=f"gRPC address of the server ({ADDRESS})")
    add("--model", help="the model that answers (turn; live in live calls)")
    add("--name", help="of the folder in out/runs (default: model and load)")
    add("--people", type=int, default=1, help="closed loop: how many at once")
    add("--rate", type=float, help="open loop: turns a second, Poisson")
    add("--trace", type=Path, help="open loop: a .csv or .json file with a start_s for each turn")
    add("--live", action="store_true", help="in live calls, one a person")
    add("--barge-in", type=float, default=0.2, help="live: share of answers that are interrupted")
    add("--seconds", type=float, default=20.0, help="measured time")
    add("--warm-up", type=float, default=5.0, help="s before it")
    add("--timeout", type=float, default=6.0, help="a caller's patience in s")
    add("--think-time", type=float, default=0.0, help="ms from an answer to the next turn")
    add("--out", type=Path, default=RUNS, help="where folders of runs are")
    add("--seed", type=int, default=0, help="of the arrivals")
    add("--emulation", type=Path, help="the emulation file of the server, for the ledger")
    parser.set_defaults(action=_run)


def _run(chosen: argparse.Namespace) -> None:
    chosen.model = chosen.model or (LIVE_MODEL if chosen.live else REAL_MODEL)
    real = chosen.live or chosen.model == REAL_MODEL
    is_open = chosen.rate is not None or chosen.trace is not None
    spec = RunSpec(
        name=chosen.name or _default_name(chosen),
        target=chosen.model,
        model=chosen.model,
        people=chosen.people,
        mode="open" if is_open else "closed",
        rate=chosen.rate,
        trace=chosen.trace and chosen.trace.resolve(),
        seconds=chosen.seconds,
        warm_up_s=chosen.warm_up,
        timeout_s=chosen.timeout,
        think_time_ms=chosen.think_time,
        seed=chosen.seed,
        live=chosen.live,
        barge_in=chosen.barge_in,
        recordings=recordings(ROOT / "samples") if real else (),
        emulation=chosen.emulation,
        out=chosen.out,
    )
    folder = run(spec, chosen.address)
    _summarise(folder)
    print(f"explain it with: python -m loadtest explain {folder}")


def _default_name(chosen: argparse.Namespace) -> str:
    if chosen.trace is not None:
        return f"{chosen.model}-{chosen.trace.stem}"
    if chosen.rate is not None:
        return f"{chosen.model}-{chosen.rate:g}-per-s"
    return f"{chosen.model}-{chosen.people}-people"


def _summarise(folder: Path) -> None:
    Console().print(Summary.read(folder).shown())


def _explain(chosen: argparse.Namespace) -> None:
    ledger = importlib.import_module("loadtest.ledger")
    ledger.explain(_folder(chosen.run))


def _folder(run_named: Path) -> Path:
    return run_named if run_named.exists() else RUNS / run_named


if __name__ == "__main__":
    sys.exit(main())
