"""`explain` one run, `compare` many."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from loadtest.ledger.console import rendered
from loadtest.ledger.explanation import Explanation
from loadtest.ledger.otlp import traces
from loadtest.ledger.page import compared, explained
from loadtest.ledger.trace import trace
from loadtest.rulers import Slo

REPORT, TRACE, OTLP, LEDGER = "report.html", "trace.json", "otlp.json", "ledger.json"


def explain(folder: Path, *, slo: Slo | None = None, console: Console | None = None) -> Explanation:
    """Account for a run: print it and write report.html, trace.json, otlp.json and ledger.json
    beside it.

    Raises FileNotFoundError where the folder holds no run, KeyError for a missing key of a line.
    """
    told = Explanation.of(folder, slo)
    (console or Console()).print(rendered(told))
    write(told)
    return told


def write(told: Explanation) -> None:
    """The files of `explain`, each at once or not at all."""
    folder = told.run.folder
    _replace(folder / LEDGER, json.dumps(told.figures(), indent=1) + "\n")
    _replace(folder / TRACE, json.dumps(trace(told), separators=(",", ":")))
    _replace(folder / OTLP, traces(told))
    _replace(folder / REPORT, explained(told))


def compare(runs: Iterable[Path | Explanation]) -> str:
    """HTML: throughput, first audio, latency and idle by cause against people, a line a series.

    A run's series is run.json's "series", or its target. Runs may be explained already.
    """
    told = [one if isinstance(one, Explanation) else Explanation.of(one) for one in runs]
    if not told:
        raise ValueError("there is no run to compare")
    return compared(told)


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, "utf-8")
    os.replace(partial, path)
