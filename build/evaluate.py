"""`make eval`: how well our own weights speak and take orders: out/eval.json, out/listening.html.

python -m build.evaluate                 everything
python -m build.evaluate --only voice    one of: voice, orders, page
python -m build.evaluate --record        also writes weights/voice/quality.json
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

# Spinning OpenMP threads slow each other down on a shared machine; read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from rich.progress import Progress

from build.fetch import replacing
from loadtest.load.runner import bars
from loadtest.seed.figures import Target, at_least

OUT: Final = Path(__file__).parents[1] / "out"
ORDERS: Final = "build.smollm.evaluate"

Found = tuple[dict[str, Any], dict[str, Target]]
"""Figures, all numbers but `detail`; and what is asked of them."""


class NotMeasured(Exception):
    """Says why."""


def voice(progress: Progress) -> Found:
    """The speaking half."""
    from build.voice.evaluate import TARGETS, evaluate_voice

    return evaluate_voice(progress), TARGETS


def orders(progress: Progress) -> Found:
    """The thinking half: what it counts, by its names behind `orders_`."""
    if find_spec(ORDERS) is None:
        raise NotMeasured(f"there is no {ORDERS}")
    module = import_module(ORDERS)
    task = progress.add_task("orders", total=None, told="")
    found = module.evaluate_orders(lambda _: progress.advance(task))
    progress.update(task, total=1, completed=1)
    counts = {key: value for key, value in found.items() if isinstance(value, int | float)}
    told = {key: value for key, value in found.items() if key not in counts}
    figures = {f"orders_{key}": float(value) for key, value in counts.items()}
    return {**figures, "detail": told}, {"orders_right": at_least(module.ENOUGH)}


def page(progress: Progress) -> Found:
    """The page to listen to: no figures."""
    from build.voice.listening import write_page

    write_page(OUT / "listening.html", progress)
    return {}, {}


PARTS: Final[dict[str, Callable[[Progress], Found]]] = {
    "voice": voice,
    "orders": orders,
    "page": page,
}


def result(found: Mapping[str, Found], missing: Mapping[str, str]) -> dict[str, Any]:
    """What is written: flat `summary`, `targets` and `met`, then details by part."""
    figures = {name: value for part, _ in found.values() for name, value in part.items()}
    summary = {name: value for name, value in figures.items() if name != "detail"}
    asked = {name: target for _, part in found.values() for name, target in part.items()}
    return {
        "summary": summary,
        "targets": {name: target.words for name, target in asked.items()},
        "met": {name: target.met(summary[name]) for name, target in asked.items()},
        "not_measured": dict(missing),
        "detail": {name: part["detail"] for name, (part, _) in found.items() if "detail" in part},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 when everything that was measured meets what is asked of it."""
    parser = argparse.ArgumentParser(
        "python -m build.evaluate",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--record", action="store_true", help="keep figures beside the weights")
    asked = parser.parse_args(arguments)
    found: dict[str, Found] = {}
    missing: dict[str, str] = {}
    with bars() as progress:
        for name in asked.only:
            try:
                found[name] = PARTS[name](progress)
            except NotMeasured as why:
                missing[name] = str(why)
    if asked.record and "voice" in found:
        from build.voice.evaluate import record

        record(found["voice"][0])
    written = result(found, missing)
    with replacing(OUT / "eval.json") as partial:
        partial.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", "utf-8")
    shown = {key: written[key] for key in ("summary", "met", "not_measured")}
    print(json.dumps(shown, indent=2))
    print(f"{OUT / 'eval.json'}")
    return 0 if all(written["met"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
