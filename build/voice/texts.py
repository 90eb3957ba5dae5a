"""Training sentences of the voice: expanded from the project's own grammar, seeded."""

import gzip
import json
import random
import string
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Final

from build.voice.grammar import GRAMMAR, SHARES

SEED: Final = 20
UTTERANCES: Final = 6000
MAX_CHARACTERS: Final = 180

_VOWELS: Final = "aeiou"


def training_texts(count: int = UTTERANCES, seed: int = SEED) -> list[str]:
    """`count` distinct utterances, in a random order that depends only on `seed`."""
    rng = random.Random(seed)
    starts, shares = list(SHARES), list(SHARES.values())
    texts: dict[str, None] = {}
    while len(texts) < count:
        text = expand(rng.choices(starts, shares)[0], rng)
        if len(text) <= MAX_CHARACTERS:
            texts.setdefault(_cased(text, rng))
    return list(texts)


def expand(symbol: str, rng: random.Random) -> str:
    """One random expansion of a grammar symbol."""
    if symbol in MADE:
        return MADE[symbol](rng)
    production = rng.choice(_alternatives(symbol))
    parts = []
    for literal, name, _, _ in string.Formatter().parse(production):
        parts.append(literal)
        if name:
            parts.append(expand(name, rng))
    return "".join(parts)


@cache
def _alternatives(symbol: str) -> list[str]:
    return GRAMMAR[symbol].split("|")


def _cased(text: str, rng: random.Random) -> str:
    """Mostly a capital first letter; pieces that follow a comma keep their small one."""
    return text[0].upper() + text[1:] if rng.random() < 0.85 else text


def _price(rng: random.Random) -> str:
    dollars, cents = rng.randint(0, 60), rng.choice([0, 25, 49, 50, 75, 99, rng.randint(1, 98)])
    if rng.random() < 0.5:
        return f"${dollars}.{cents:02d}"
    if dollars == 0:
        return f"{max(cents, 2)} cents"
    unit = "dollar" if dollars == 1 else "dollars"
    return f"{dollars} {unit} and {cents} cents" if cents > 1 else f"{dollars} {unit}"


def _time(rng: random.Random) -> str:
    hour, minute = rng.randint(1, 12), rng.choice([0, 0, 15, 30, 45, rng.randint(10, 59)])
    if minute == 0:
        return f"{hour} " + rng.choice(["o'clock", "am", "pm"])
    return f"{hour}:{minute:02d}" + rng.choice(["", " am", " pm"])


def _a_single(rng: random.Random) -> str:
    item = expand("single", rng)
    return f"an {item}" if item[0].lower() in _VOWELS else f"a {item}"


@cache
def lexicon_words() -> tuple[str, ...]:
    """Plain lower-case words of hibari's American lexicon, three to twelve letters."""
    asset = resources.files("hibari") / "assets" / "lexicon_us_gold.json.gz"
    entries = json.loads(gzip.decompress(asset.read_bytes()))
    return tuple(sorted(w for w in entries if w.isascii() and w.islower() and 3 <= len(w) <= 12))


def _word(rng: random.Random) -> str:
    return rng.choice(lexicon_words())


MADE: Final[dict[str, Callable[[random.Random], str]]] = {
    "price": _price,
    "time": _time,
    "a_single": _a_single,
    "word": _word,
    "count": lambda rng: str(rng.choice([rng.randint(2, 12), rng.randint(13, 999)])),
    "date": lambda rng: str(rng.randint(1, 28)),
    "year": lambda rng: str(rng.randint(1801, 2029)),
    "digits": lambda rng: " ".join(str(rng.randint(0, 9)) for _ in range(7)),
}
"""Symbols made by arithmetic or from the lexicon rather than by the grammar."""
