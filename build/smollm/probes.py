"""Ten short conversations the ordering model must hold; its answers go to weights/orders.

Items mix what the templates contain with what they do not; the answers of earlier exchanges are the
model's own, as in serving. Ten probes find a broken model; they do not measure a good one.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from build.fetch import replacing
from build.smollm import weights
from build.smollm.lora import ADAPTERS
from build.smollm.model import Llama
from python_backends.ar_loop.prompt import Utterance, prompt_tokens

QUALITY = ADAPTERS.with_name("quality.json")


@dataclass(frozen=True)
class Probe:
    """What the customer says, and for the last answer: words it must and must not contain."""

    heard: tuple[str, ...]
    says: tuple[str, ...]
    never: tuple[str, ...] = ()


PROBES = (
    Probe(
        ("Hi, I would like two cheeseburgers and a large Coke please.",),
        ("two cheeseburgers", "large coke", "anything else"),
    ),
    Probe(
        ("Can I get 3 peach pies and a medium ginger ale?",),
        ("three peach pies", "medium ginger ale"),
    ),
    Probe(
        (
            "Hi, I would like two cheeseburgers and a large Coke please.",
            "Can I also get a chicken sandwich with fries?",
            "Do you have pizza?",
            "Make that a small coffee instead.",
            "No thanks, that is all.",
        ),
        ("pull forward",),
        ("sorry",),
    ),
    Probe(
        (
            "I'd like a veggie burger without onions.",
            "And a large lemonade.",
            "Do you have pizza?",
        ),
        ("don't have pizza",),
        ("yes",),
    ),
    Probe(
        ("Two tacos please.", "And a medium Sprite.", "Make that a small coffee instead."),
        ("changed", "small coffee"),
        ("sprite",),
    ),
    Probe(("Do you have any sushi?",), ("don't have sushi",), ("yes",)),
    Probe(("Do you have onion rings?", "Large please."), ("large onion rings",), ("sorry",)),
    Probe(("What is the capital of Germany?",), ("only take orders",), ("got it",)),
    Probe(
        ("Hello there.", "Yes, a bacon burger with extra cheese."), ("bacon burger", "extra cheese")
    ),
    Probe(
        ("A fish sandwich please.", "That's it.", "Thank you so much."), ("welcome",), ("sorry",)
    ),
)


def converse(model: Llama, heard: tuple[str, ...]) -> list[str]:
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


def passes(probe: Probe, answer: str) -> bool:
    """Whether the last answer has what it must and lacks what it must not."""
    said = answer.lower()
    return all(word in said for word in probe.says) and not any(
        word in said for word in probe.never
    )


def write_quality() -> Path:
    """Run every probe on the merged fp32 model, and write what was heard and said."""
    from build.smollm.export import merged_model

    model = merged_model()
    rows = []
    for probe in PROBES:
        answers = converse(model, probe.heard)
        lines = [list(pair) for pair in zip(probe.heard, answers, strict=True)]
        rows.append({"passes": passes(probe, answers[-1]), "conversation": lines})
    report = {
        "model": "SmolLM2-135M-Instruct with the ordering LoRA, PyTorch fp32, greedy",
        "passed": sum(bool(row["passes"]) for row in rows),
        "probes": rows,
    }
    with replacing(QUALITY) as partial:
        partial.write_text(json.dumps(report, indent=1) + "\n")
    return QUALITY
