"""How customers say what they order, and how a recogniser writes it down."""

import random
from collections.abc import Sequence

from build.smollm.lines import ALIASES
from python_backends.ordering.menu import (
    DRINKS,
    NUMBERS,
    SIDES,
    Item,
    count_word,
    joined,
    one,
    plural,
)

_FILLERS = ("Um", "Uh", "Okay", "So", "Well", "Like", "Hmm")
_LESS = (
    *("without {}", "but no {}", "hold the {}", "with no {}", "but without the {}", "minus the {}"),
    *("but hold the {}", "skip the {}", "but skip the {}", "leave off the {}", "no {} on it"),
    *("but leave out the {}", "and no {} please", "only without {}", "but please no {}"),
)
_MORE = (
    *("with extra {}", "and extra {} on it", "with a lot of {}", "with more {}", "but extra {}"),
    *("and extra {} please", "with some extra {}", "but with extra {}", "and put extra {} on it"),
)
_LINKS = (" and ", ", ", " and also ", " plus ", " plus ", " along with ", ", and then ")
_ALIASED = {full: alias for alias, full in ALIASES.items() if full not in ("coke",)}


def items_said(items: list[Item], rng: random.Random) -> str:
    """Items as one customer lists them."""
    said = [item_said(item, rng) for item in items]
    if len(said) > 1 and rng.random() < 0.35:
        return rng.choice(_LINKS).join(said)
    return joined(said)


def item_said(item: Item, rng: random.Random) -> str:
    """One item: "two tacos without onions", "a Coke, large", "3 burritos, hold the mayo"."""
    noun = _noun_said(item, rng)
    if not item.changes:
        return noun
    return f"{noun}{changes_said(item.changes, rng)}"


def changes_said(changes: Sequence[str], rng: random.Random) -> str:
    """What follows an item: " with no onions", ", hold the onions"."""
    form = rng.random()
    if form < 0.5:
        return f" with {' and '.join(changes)}"
    if form < 0.62:
        return f", {' and '.join(changes)}"
    return f"{rng.choice((' ', ' ', ', '))}{_changes_apart(changes, rng)}"


def _changes_apart(changes: Sequence[str], rng: random.Random) -> str:
    said = []
    for change in changes:
        how, what = change.split(" ", 1)
        said.append(rng.choice(_LESS if how == "no" else _MORE).format(what))
    return " and ".join(said)


def _noun_said(item: Item, rng: random.Random) -> str:
    name, form = item.name, rng.random()
    noun = plural(name) if item.count > 1 else name
    sized = f"{item.size} {noun}".strip()
    if item.count > 1:
        number = count_word(item.count)
        if item.count == 2 and form < 0.1:
            number = "a couple of"
        elif item.count == 6 and form < 0.1:
            number = "half a dozen"
        elif item.count == 12 and form < 0.5:
            number = "a dozen"
        return f"{number} {noun}, {item.size}" if item.size and form > 0.93 else f"{number} {sized}"
    if name in SIDES:
        orders = (f"a {item.size} order of {noun}", f"one {sized}", f"an order of {sized}")
        return rng.choice(orders) if item.size and form < 0.25 else sized
    if form < 0.12:
        return f"one {sized}"
    if form < 0.2 and name in DRINKS:
        return sized
    if form > 0.93 and item.size:
        return f"{one(noun)}, {item.size}"
    return one(sized)


def sentence(text: str, rng: random.Random) -> str:
    """A template filled in, with a capital and its mark, as a recogniser writes it."""
    text = text.strip()
    asks = text.lower().startswith(
        (
            "can",
            "could",
            "do ",
            "is ",
            "are ",
            "what",
            "how",
            "which",
            "may ",
            "who",
            "where",
            "did",
        )
    )
    text = f"{text[0].upper()}{text[1:]}{'?' if asks else '.'}"
    return as_heard(text, rng)


def as_heard(text: str, rng: random.Random) -> str:
    """A written line as a recogniser may have it: digits, fillers, lost marks and capitals."""
    if rng.random() < 0.3:
        for value, word in enumerate(NUMBERS[1:], start=2):
            text = text.replace(f" {word} ", f" {value} ")
    if rng.random() < 0.25:
        for full, alias in _ALIASED.items():
            text = text.replace(full, alias)
    if rng.random() < 0.12:
        text = f"{rng.choice(_FILLERS)}, {text[0].lower()}{text[1:]}"
        text = text.replace(", i ", ", I ").replace(", i'", ", I'")
    if rng.random() < 0.12:
        text = text.rstrip(".?")
    if rng.random() < 0.08:
        text = text.replace(",", "")
    return text.lower() if rng.random() < 0.1 else text
