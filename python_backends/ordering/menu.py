"""What is sold, at which price, and how a line of an order is said; trainer and server read it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

FOOD: Final = {
    "cheeseburger": 400,
    "hamburger": 350,
    "bacon burger": 500,
    "double cheeseburger": 550,
    "veggie burger": 450,
    "chicken sandwich": 450,
    "fish sandwich": 450,
    "chicken wrap": 400,
    "taco": 250,
    "burrito": 500,
    "hot dog": 300,
    "salad": 450,
    "apple pie": 200,
    "cookie": 100,
    "brownie": 150,
    "blueberry muffin": 200,
    "ice cream cone": 200,
}
"""Price of one in cents."""

SIDES: Final = ("fries", "onion rings", "chicken nuggets", "hash browns", "mozzarella sticks")
DRINKS: Final = (
    "Coke",
    "Diet Coke",
    "Sprite",
    "lemonade",
    "iced tea",
    "coffee",
    "iced coffee",
    "hot chocolate",
    "orange juice",
    "milkshake",
    "root beer",
    "water",
)
SIZES: Final = ("small", "medium", "large")
SIDE_CENTS: Final = (200, 250, 300)
DRINK_CENTS: Final = (150, 200, 250)
"""By size, as SIZES has them."""

EXTRA_CENTS: Final = {"extra cheese": 50, "extra bacon": 50}
"""Everything else that is changed about an item is free."""

FOOD_CHANGES: Final = (
    *(f"no {what}" for what in ("onions", "pickles", "tomato", "lettuce", "mayo", "cheese")),
    *(f"no {what}" for what in ("ketchup", "mustard", "sauce", "salt", "dressing")),
    *(f"extra {what}" for what in ("cheese", "bacon", "pickles", "onions", "lettuce", "tomato")),
    *(f"extra {what}" for what in ("ketchup", "mayo", "mustard", "sauce", "salt", "dressing")),
)
DRINK_CHANGES: Final = ("no ice", "extra ice", "no sugar", "extra sugar", "no cream", "extra cream")
CHANGES: Final = (*FOOD_CHANGES, *DRINK_CHANGES)
"""What can be changed about an item, as it is said behind "with"."""

NUMBERS: Final = (
    *("one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)


@dataclass(frozen=True)
class Item:
    """One line of an order. A drink or a side that is said without a size is a medium one."""

    name: str
    count: int = 1
    size: str = ""
    changes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As it is said: "two tacos with no onions", "a large Coke", "large fries"."""
        noun = f"{self.size} {self.name}".strip()
        if self.count > 1:
            noun = f"{count_word(self.count)} {plural(noun)}"
        elif self.name not in SIDES:
            noun = one(noun)
        return f"{noun} with {' and '.join(self.changes)}" if self.changes else noun

    @property
    def again(self) -> str:
        """As it is referred to: "the two tacos with no onions", "the large Coke"."""
        text = self.text
        return f"the {text.split(' ', 1)[1] if text.startswith(('a ', 'an ')) else text}"

    @property
    def cents(self) -> int:
        """Price of the whole line."""
        extras = sum(EXTRA_CENTS.get(change, 0) for change in self.changes)
        return self.count * (unit_cents(self.name, self.size) + extras)

    def times(self, count: int) -> "Item":
        """So many of it."""
        return replace(self, count=count)


def is_sized(name: str) -> bool:
    """Drinks and sides have a size, food has none."""
    return name not in FOOD


def unit_cents(name: str, size: str) -> int:
    """Price of one. Raises KeyError for what is not sold."""
    if name in FOOD:
        return FOOD[name]
    if name not in SIDES and name not in DRINKS:
        raise KeyError(name)
    prices = SIDE_CENTS if name in SIDES else DRINK_CENTS
    return prices[SIZES.index(size or "medium")]


def count_word(count: int) -> str:
    """A small number in letters."""
    return NUMBERS[count - 1] if 1 <= count <= len(NUMBERS) else str(count)


def plural(noun: str) -> str:
    """English plural of a menu noun."""
    if noun.endswith("s"):
        return noun
    return f"{noun}es" if noun.endswith(("ch", "sh")) else f"{noun}s"


def one(noun: str) -> str:
    """The noun with its indefinite article."""
    return f"an {noun}" if noun[0].lower() in "aeio" else f"a {noun}"


def joined(texts: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def money(cents: int) -> str:
    """As it is written for the voice: "$4", "$3.50", "50 cents"."""
    if cents < 100:
        return f"{cents} cents"
    return f"${cents // 100}" if cents % 100 == 0 else f"${cents // 100}.{cents % 100:02}"


def menu_text() -> str:
    """The menu as every prompt has it."""
    food = ", ".join(f"{name} {money(cents)}" for name, cents in FOOD.items())
    extras = " or ".join(name.removeprefix("extra ") for name in EXTRA_CENTS)
    return (
        f"Food: {food}.\n"
        f"Sides, {_by_size(SIDE_CENTS)}: {', '.join(SIDES)}.\n"
        f"Drinks, {_by_size(DRINK_CENTS)}: {', '.join(DRINKS)}.\n"
        f"Extra {extras}: {money(next(iter(EXTRA_CENTS.values())))} each."
    )


def _by_size(cents: Sequence[int]) -> str:
    return ", ".join(f"{size} {money(price)}" for size, price in zip(SIZES, cents, strict=True))
