"""`make eval`: how well our own weights speak and take orders: out/eval.json, and pages to look at.

python -m build.evaluate                 everything
python -m build.evaluate --only voice    one or more of: voice, orders, spoken, page
python -m build.evaluate --record        also writes weights/*/quality.json

out/eval.json has what was run this time.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Spinning OpenMP threads slow each other down on a shared machine; read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from rich.progress import Progress

from build.fetch import replacing
from loadtest.load.runner import bars
from loadtest.seed.figures import Target, at_least, at_most

OUT: Final = Path(__file__).parents[1] / "out"
EVAL: Final = OUT / "eval.json"

Targets = dict[str, Target]


@dataclass(frozen=True)
class Found:
    """What a part measured: flat figures, what is asked of them, and what readers may look up."""

    figures: Mapping[str, float]
    targets: Targets
    detail: dict[str, Any]
    record: Callable[[], object] = lambda: None
    """Keeps it beside the weights that it was measured of."""

    pages: tuple[Path, ...] = ()


def voice(progress: Progress) -> Found:
    """The speaking half."""
    from build.voice import evaluate
    from build.voice.curves import drawn_steps

    found = evaluate.evaluate_voice(progress)
    picture = OUT / "steps.png"
    with replacing(picture) as partial:
        partial.write_bytes(drawn_steps(found))
    figures = {key: value for key, value in found.items() if key != "detail"}
    return Found(
        figures, evaluate.TARGETS, found["detail"], lambda: evaluate.record(found), (picture,)
    )


def orders(progress: Progress) -> Found:
    """The thinking half: what it counts, by its names behind `orders_`."""
    from build.smollm import evaluate
    from build.smollm.page import write_page

    task = progress.add_task("orders", total=evaluate.ANSWERS, told="")
    found = evaluate.evaluate_orders(lambda _: progress.advance(task))
    page = OUT / "orders.html"
    write_page(page, found)
    figures = {f"orders_{key}": one for key, one in found.items() if isinstance(one, int)}
    detail = {key: one for key, one in found.items() if not isinstance(one, int)}
    targets = {
        "orders_right": at_least(evaluate.ENOUGH),
        "orders_turns_with_invented_items": at_most(0),
    }
    return Found(figures, targets, detail, lambda: evaluate.record(found), (page,))


def spoken(progress: Progress) -> Found:
    """All of it: the held-out conversations by sound."""
    from build.spoken_orders import evaluate_spoken

    page = OUT / "conversations.html"
    found = evaluate_spoken(page, progress)
    detail = found.pop("detail")
    return Found(found, {"spoken_failed": at_most(0)}, detail, pages=(page,))


def page(progress: Progress) -> Found:
    """The page of the voices: no figures."""
    from build.voice.listening import write_page

    page = OUT / "listening.html"
    write_page(page, progress)
    return Found({}, {}, {}, pages=(page,))


PARTS: Final[dict[str, Callable[[Progress], Found]]] = {
    "voice": voice,
    "orders": orders,
    "spoken": spoken,
    "page": page,
}


def result(found: Mapping[str, Found]) -> dict[str, Any]:
    """What is written: flat `summary`, `targets` and `met`, then details by part. A figure that
    is asked for and missing is not met."""
    summary = {name: value for part in found.values() for name, value in part.figures.items()}
    asked = {name: target for part in found.values() for name, target in part.targets.items()}
    return {
        "summary": summary,
        "targets": {name: target.words for name, target in asked.items()},
        "met": {name: name in summary and one.met(summary[name]) for name, one in asked.items()},
        "detail": {name: part.detail for name, part in found.items() if part.detail},
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
    with bars() as progress:
        for name in asked.only:
            found[name] = PARTS[name](progress)
            written = result(found)
            with replacing(EVAL) as partial:
                partial.write_text(
                    json.dumps(written, indent=2, ensure_ascii=False) + "\n", "utf-8"
                )
            if asked.record:
                found[name].record()
    print(json.dumps({key: written[key] for key in ("summary", "met")}, indent=2))
    for path in (EVAL, *(page for part in found.values() for page in part.pages)):
        print(path)
    return 0 if all(written["met"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
