"""Ten short conversations the ordering model must hold; its answers go to weights/orders.

Items mix what the templates contain with what they do not; the answers of earlier exchanges are the
model's own, as in serving. Ten probes find a broken model; they do not measure a good one.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from build.fetch import replacing, sha256
from build.smollm import weights
from build.smollm.lora import ADAPTERS
from build.smollm.model import Llama
from python_backends.ar_loop.prompt import Utterance, prompt_tokens

QUALITY = ADAPTERS.with_name("quality.json")


@dataclass(frozen=True)
class Line:
    """What the customer says; lower-case words the answer must, and must not, contain."""

    heard: str
    says: tuple[str, ...]
    never: tuple[str, ...] = ()


_BURGERS = Line(
    "Hi, I would like two cheeseburgers and a large Coke please.",
    ("two cheeseburgers", "large coke", "anything else"),
)
_NO_PIZZA = Line("Do you have pizza?", ("sorry", "don't have pizza"), ("yes",))
_SMALL_COFFEE = Line("Make that a small coffee instead.", ("changed", "small coffee"), ("sorry",))
_DONE = Line("No thanks, that is all.", ("pull forward",), ("sorry", "got it"))

PROBES: tuple[tuple[Line, ...], ...] = (
    (_BURGERS,),
    (
        Line(
            "Can I get 3 peach pies and a medium ginger ale?",
            ("three peach pies", "medium ginger ale"),
        ),
    ),
    (
        _BURGERS,
        Line("Can I also get a chicken sandwich with fries?", ("chicken sandwich", "fries")),
        _NO_PIZZA,
        _SMALL_COFFEE,
        _DONE,
    ),
    (
        Line("I'd like a veggie burger without onions.", ("veggie burger", "no onions")),
        Line("And a large lemonade.", ("large lemonade",), ("onions",)),
        _NO_PIZZA,
    ),
    (
        Line("Two tacos please.", ("two tacos",)),
        Line("And a medium Sprite.", ("medium sprite",)),
        _SMALL_COFFEE,
        Line("And a cookie.", ("cookie",), ("coffee",)),
    ),
    (Line("Do you have any sushi?", ("don't have sushi",), ("yes",)), _BURGERS),
    (
        Line("Do you have onion rings?", ("yes", "size"), ("sorry",)),
        Line("Large please.", ("large onion rings",), ("sorry",)),
    ),
    (Line("What is the capital of Germany?", ("only take orders",), ("got it",)),),
    (
        Line("Hello there.", ("welcome",)),
        Line("Yes, a bacon burger with extra cheese.", ("bacon burger", "extra cheese")),
        Line("Yes.", ("what else",)),
        Line("Do you have brownies?", ("yes", "how many"), ("sorry",)),
        Line("Two.", ("two brownies",)),
    ),
    (
        Line("A fish sandwich please.", ("fish sandwich",)),
        Line("That's it.", ("pull forward",)),
        Line("Thank you so much.", ("welcome",), ("sorry",)),
    ),
)


def converse(model: Llama, heard: Sequence[str]) -> list[str]:
    """The model's greedy answers to one conversation, prompted exactly as in serving."""
    tokenizer = weights.tokenizer()
    history: list[Utterance] = []
    answers = []
    for line in heard:
        prompt = prompt_tokens(
            history, line, lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)
        )
        answers.append(tokenizer.decode(model.greedy(prompt, end=weights.end_token())))
        history += [Utterance("user", line), Utterance("assistant", answers[-1])]
    return answers


def is_right(line: Line, answer: str) -> bool:
    """Whether an answer has what it must and lacks what it must not."""
    said = answer.lower()
    return all(word in said for word in line.says) and not any(word in said for word in line.never)


def judge(model: Llama, lines: tuple[Line, ...]) -> dict[str, object]:
    """One conversation as a row of the report: it passes when every answer is right."""
    answers = converse(model, [line.heard for line in lines])
    rows = [
        {"heard": line.heard, "answer": answer, "right": is_right(line, answer)}
        for line, answer in zip(lines, answers, strict=True)
    ]
    return {"passes": all(row["right"] for row in rows), "conversation": rows}


def write_quality() -> Path:
    """Run every probe on the merged fp32 model, and write what was heard and said."""
    from build.smollm.export import merged_model

    model = merged_model()
    rows = [judge(model, lines) for lines in PROBES]
    report = {
        "model": "SmolLM2-135M-Instruct with the ordering LoRA, PyTorch fp32, greedy",
        "adapters_sha256": sha256(ADAPTERS),
        "probes": len(rows),
        "passed": sum(bool(row["passes"]) for row in rows),
        "conversations": rows,
    }
    with replacing(QUALITY) as partial:
        partial.write_text(json.dumps(report, indent=1) + "\n")
    return QUALITY
