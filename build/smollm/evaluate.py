"""The held-out conversations, judged by rules: `python -m build.smollm.evaluate`.

A turn is right when
* its words are: what it must say is said, what it must not say is not, every newly ordered item is
  named, and nothing is named that was neither asked for nor ordered, and nothing confirmed that is
  not sold (an invented item);
* the running order, as conversation code reads it from the answer, changes as it should.
The same turns are put to SmolLM2 without the LoRA, and a second set of conversations with it, whose
author had not seen what it is trained on.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from build.fetch import replacing
from build.llama.model import Llama
from build.smollm import weights
from build.smollm.export import merged_model
from build.smollm.held_out import ABSENT as HELD_OUT_ABSENT
from build.smollm.held_out import CONVERSATIONS
from build.smollm.held_out_again import ABSENT_AGAIN, CONVERSATIONS_AGAIN
from build.smollm.lines import canonical
from build.smollm.lora import ADAPTERS
from build.smollm.talker import Served, answers
from build.smollm.turns import Line
from build.smollm.wares import ABSENT
from python_backends.digests import sha256
from python_backends.ordering.menu import CHANGES, DRINKS, FOOD, SIDES, Item, plural
from python_backends.ordering.order import ITEM, Order, any_of, clauses, items_in

QUALITY = ADAPTERS.with_name("quality.json")

ENOUGH = 45
"""Held-out turns that must be right, of 50."""

ANSWERS = sum(map(len, (*CONVERSATIONS, *CONVERSATIONS_AGAIN, *CONVERSATIONS)))
"""That `evaluate_orders` asks for."""

_COUNTED = ("turns", "right", "right_words", "turns_with_invented_items", "final_orders_right")
_ABSENT_NAMES = [name.lower() for name in (*ABSENT, *HELD_OUT_ABSENT, *ABSENT_AGAIN)]
_ABSENT = re.compile(rf"\b({any_of([*_ABSENT_NAMES, *map(plural, _ABSENT_NAMES)])})\b")
_ON_MENU = {*FOOD, *SIDES, *DRINKS}
_PLAIN = {
    *("the", "a", "an", "and", "to", "with", "of", "for", "everything", "it", "that", "your"),
    *("order", "you"),
}
"""Words that name nothing."""

_CHANGES = re.compile(rf"\b({any_of(CHANGES)})\b")

Lines = Sequence[Line]


def named(text: str) -> set[str]:
    """Everything that a text names: items sold, items that are not, and changes."""
    spoken = canonical(text)
    sold = [found.span() for found in ITEM.finditer(spoken)]
    absent = [
        found[1].removesuffix("s")
        for found in _ABSENT.finditer(spoken)
        if not any(start <= found.start() and found.end() <= end for start, end in sold)
    ]
    return {item.name for item in items_in(spoken)} | set(_CHANGES.findall(spoken)) | set(absent)


def invented(answer: str, asked: str, order: Order) -> set[str]:
    """What an answer names that the customer's lines (`asked`) and the order do not, and what it
    confirms that nobody sells, word by word."""
    return (named(answer) | _unsold(answer)) - named(asked) - named(order.text)


def _unsold(answer: str) -> set[str]:
    """Words of the answer's confirmations that are neither items nor changes nor say how many."""
    left = (ITEM.sub(" ", canonical(what)) for _, what in clauses(answer))
    words = {word for text in left for word in re.findall(r"[a-z']+", text)}
    return words - _PLAIN


def words_are_right(line: Line, answer: str) -> bool:
    """Whether an answer has what it must and lacks what it must not."""
    said = answer.lower()
    new = [item.text.lower() for item in _newly_ordered(line)]
    return (
        all(any(_has(said, word) for word in group.split("|")) for group in (*line.says, *new))
        and not any(_has(said, word) for word in line.never)
        and bool(said)
    )


def _has(said: str, word: str) -> bool:
    """Whether a word stands in a text, and, of a number, the whole number: $2 is not in $2.50."""
    return re.search(rf"{re.escape(word)}(?!(?<=\d)\.?\d)", said) is not None


def _newly_ordered(line: Line) -> tuple[Item, ...]:
    adds = line.good.startswith("Got it") or "I added" in line.good
    return Order().after(line.good).items if adds else ()


def change_of(order: Order, answer: str) -> Counter[Item]:
    """What an answer adds to the order (above zero) and takes from it (below)."""
    difference = _counted(order.after(answer))
    difference.subtract(_counted(order))
    return Counter({item: count for item, count in difference.items() if count})


def _counted(order: Order) -> Counter[Item]:
    return Counter({item.times(1): item.count for item in order.items})


def judge(lines: Lines, said: Sequence[str]) -> list[dict[str, Any]]:
    """Every turn of one conversation: what was heard and said, and what of it was right."""
    rows, asked, own, expected = [], "", Order(), Order()
    for line, answer in zip(lines, said, strict=True):
        asked = f"{asked}\n{line.heard}"
        extra = invented(answer, asked, own) - (_ON_MENU if line.menu else set())
        fits = change_of(own, answer) == change_of(expected, line.good)
        own, expected = own.after(answer), expected.after(line.good)
        words = words_are_right(line, answer) and not extra
        row = {"heard": line.heard, "answer": answer, "right": words and fits}
        if not row["right"]:
            row |= {"words": words, "order": fits, "invented": sorted(extra), "good": line.good}
        rows.append(row)
    rows[-1]["final_order"] = own.line
    rows[-1]["final_order_right"] = _counted(own) == _counted(expected)
    return rows


def evaluate(
    served: Served,
    told: Callable[[str], None],
    conversations: Sequence[Lines] = CONVERSATIONS,
) -> dict[str, Any]:
    """Figures over all conversations, and the conversations themselves under `held`."""
    heard = [[line.heard for line in lines] for lines in conversations]
    said = answers(served, heard, told)
    held = [judge(lines, own) for lines, own in zip(conversations, said, strict=True)]
    rows = [row for conversation in held for row in conversation]
    return {
        "turns": len(rows),
        "right": sum(bool(row["right"]) for row in rows),
        "right_words": sum(bool(row.get("words", True)) for row in rows),
        "turns_with_invented_items": sum(bool(row.get("invented")) for row in rows),
        "conversations": len(held),
        "final_orders_right": sum(bool(one[-1]["final_order_right"]) for one in held),
        "held": held,
    }


def plain_model() -> Llama:
    """SmolLM2 as it was published."""
    model = Llama(weights.config())
    model.load_state_dict(weights.state_dict())
    return model.eval()


def evaluate_orders(progress: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Flat figures, and what was said: of the adapters on both sets of conversations, and of the
    plain model on the first, whose figures end in `_without`; those of the second in `_again`.

    `progress` is told every answer, ANSWERS of them.
    """
    ordering = Served.of(merged_model(), len(CONVERSATIONS))
    found = evaluate(ordering, progress)
    others = {
        "again": evaluate(ordering, progress, CONVERSATIONS_AGAIN),
        "without": evaluate(Served.of(plain_model(), len(CONVERSATIONS)), progress),
    }
    told = {"held_out": found.pop("held")}
    for name, other in others.items():
        found |= {f"{figure}_{name}": other[figure] for figure in _COUNTED}
        told[f"held_out_{name}"] = other["held"]
    return {**found, **told}


def record(found: dict[str, Any]) -> Path:
    """Write what `evaluate_orders` found beside the adapters."""
    report = {
        "model": "SmolLM2-135M-Instruct with the ordering LoRA, the int8 graph as served, greedy",
        "adapters_sha256": sha256(ADAPTERS),
        **found,
    }
    with replacing(QUALITY) as partial:
        partial.write_text(json.dumps(report, indent=1) + "\n")
    return QUALITY


def write_quality() -> Path:
    """Evaluate the committed adapters, and write figures and conversations to weights/orders."""
    with tqdm(total=ANSWERS, desc="held-out turns") as bar:
        return record(evaluate_orders(lambda _: bar.update() and None))


def main() -> int:
    """Show every turn that is wrong; exit status 1 below ENOUGH, or with an invented item."""
    parser = argparse.ArgumentParser("python -m build.smollm.evaluate", description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    print(write_quality())
    report = json.loads(QUALITY.read_text())
    for row in (row for conversation in report["held_out"] for row in conversation):
        if not row["right"]:
            print(f"wrong  heard: {row['heard']}\n       said: {row['answer']}")
    print({name: value for name, value in report.items() if isinstance(value, int)})
    return int(report["right"] < ENOUGH or report["turns_with_invented_items"] > 0)


if __name__ == "__main__":
    sys.exit(main())
