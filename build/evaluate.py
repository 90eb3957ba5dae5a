"""`make eval`: how well our own weights speak and take orders: out/eval.json, and pages to look at.

python -m build.evaluate                 everything
python -m build.evaluate --only voice    one or more of: voice, orders, spoken, page
python -m build.evaluate --record        also writes weights/*/quality.json
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

# Spinning OpenMP threads slow each other down on a shared machine; read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from rich.progress import Progress

from build.fetch import replacing
from loadtest.load.runner import bars
from loadtest.seed.figures import Target, at_least, at_most

OUT: Final = Path(__file__).parents[1] / "out"

WRITTEN: Final = ("eval.json", "orders.html", "conversations.html", "steps.png", "listening.html")

Found = tuple[dict[str, Any], dict[str, Target]]
"""Figures, all numbers but `detail`; and what is asked of them."""


def voice(progress: Progress) -> Found:
    """The speaking half; out/steps.png."""
    from build.voice.curves import drawn_steps
    from build.voice.evaluate import TARGETS, evaluate_voice

    found = evaluate_voice(progress)
    with replacing(OUT / "steps.png") as partial:
        partial.write_bytes(drawn_steps(found))
    return found, TARGETS


def orders(progress: Progress) -> Found:
    """The thinking half: what it counts, by its names behind `orders_`; out/orders.html."""
    from build.smollm.evaluate import ANSWERS, ENOUGH, evaluate_orders
    from build.smollm.page import write_page

    task = progress.add_task("orders", total=ANSWERS, told="")
    found = evaluate_orders(lambda _: progress.advance(task))
    write_page(OUT / "orders.html", found)
    counts = {key: value for key, value in found.items() if isinstance(value, int)}
    told = {key: value for key, value in found.items() if key not in counts}
    figures = {f"orders_{key}": float(value) for key, value in counts.items()}
    targets = {
        "orders_right": at_least(ENOUGH),
        "orders_turns_with_invented_items": at_most(0),
    }
    return {**figures, "detail": told}, targets


def spoken(progress: Progress) -> Found:
    """All of it: the held-out conversations by sound; out/conversations.html."""
    from build.spoken_orders import evaluate_spoken

    return evaluate_spoken(OUT / "conversations.html", progress), {}


def page(progress: Progress) -> Found:
    """The page of the voices: no figures."""
    from build.voice.listening import write_page

    write_page(OUT / "listening.html", progress)
    return {}, {}


PARTS: Final[dict[str, Callable[[Progress], Found]]] = {
    "voice": voice,
    "orders": orders,
    "spoken": spoken,
    "page": page,
}


def record(found: Mapping[str, Found]) -> None:
    """Keeps what was measured beside the weights that it was measured of."""
    if "voice" in found:
        from build.voice.evaluate import record as record_voice

        record_voice(found["voice"][0])
    if "orders" in found:
        from build.smollm.evaluate import record as record_orders

        figures = dict(found["orders"][0])
        told = figures.pop("detail")
        counts = {name.removeprefix("orders_"): int(count) for name, count in figures.items()}
        record_orders({**counts, **told})


def result(found: Mapping[str, Found]) -> dict[str, Any]:
    """What is written: flat `summary`, `targets` and `met`, then details by part."""
    figures = {name: value for part, _ in found.values() for name, value in part.items()}
    summary = {name: value for name, value in figures.items() if name != "detail"}
    asked = {name: target for _, part in found.values() for name, target in part.items()}
    return {
        "summary": summary,
        "targets": {name: target.words for name, target in asked.items()},
        "met": {name: target.met(summary[name]) for name, target in asked.items()},
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
    with bars() as progress:
        found = {name: PARTS[name](progress) for name in asked.only}
    if asked.record:
        record(found)
    written = result(found)
    with replacing(OUT / "eval.json") as partial:
        partial.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", "utf-8")
    print(json.dumps({key: written[key] for key in ("summary", "met")}, indent=2))
    for path in filter(Path.exists, (OUT / name for name in WRITTEN)):
        print(path)
    return 0 if all(written["met"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
