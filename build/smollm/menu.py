"""The menu of the ordering dialogs, and how its items are said."""

import random
from dataclasses import dataclass

FOOD = (
    "cheeseburger",
    "hamburger",
    "bacon burger",
    "double cheeseburger",
    "veggie burger",
    "chicken sandwich",
    "fish sandwich",
    "chicken wrap",
    "taco",
    "burrito",
    "hot dog",
    "salad",
    "apple pie",
    "cookie",
    "brownie",
    "blueberry muffin",
    "ice cream cone",
)
SIDES = ("fries", "onion rings", "chicken nuggets", "hash browns", "mozzarella sticks")
DRINKS = (
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
ABSENT = (
    "pizza",
    "sushi",
    "ramen",
    "pasta",
    "spaghetti",
    "lasagna",
    "steak",
    "lobster",
    "shrimp",
    "curry",
    "fried rice",
    "noodles",
    "soup",
    "waffles",
    "pancakes",
    "donuts",
    "bagels",
    "croissants",
    "cheesecake",
    "kebabs",
    "falafel",
    "dumplings",
    "meatballs",
    "oysters",
    "beer",
    "wine",
    "whiskey",
    "champagne",
    "cocktails",
    "batteries",
)
"""Things people ask for that are not sold here."""

SIZES = ("small", "medium", "large")
NUMBERS = ("one", "two", "three", "four", "five", "six")
MODIFIERS = (
    "no onions",
    "no pickles",
    "no tomato",
    "no mayo",
    "no cheese",
    "extra cheese",
    "extra pickles",
    "extra bacon",
    "extra ketchup",
)
_BURGER_LIKE = ("burger", "sandwich", "wrap", "taco", "burrito", "hot dog")


@dataclass(frozen=True)
class Item:
    """One line of an order. `count` 1 is said "a"; `size` and `modifier` may be empty."""

    name: str
    count: int = 1
    size: str = ""
    modifier: str = ""

    @property
    def text(self) -> str:
        """As it is said: "two tacos with no onions", "a large Coke", "large fries"."""
        noun = f"{self.size} {self.name}".strip()
        if self.name not in SIDES:
            noun = f"{NUMBERS[self.count - 1]} {plural(noun)}" if self.count > 1 else one(noun)
        return f"{noun} with {self.modifier}" if self.modifier else noun


def plural(noun: str) -> str:
    """English plural of a menu noun."""
    if noun in ABSENT or noun.endswith("s"):
        return noun
    if noun.endswith(("ch", "sh")):
        return f"{noun}es"
    return f"{noun}s"


def one(noun: str) -> str:
    """The noun with its indefinite article."""
    return f"an {noun}" if noun[0].lower() in "aeio" else f"a {noun}"


def listed(items: list[Item]) -> str:
    """ "a", "a and b", "a, b and c" of the items' texts."""
    texts = [item.text for item in items]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def random_item(rng: random.Random) -> Item:
    """Any complete line: a drink or a side has its size."""
    kind = rng.random()
    if kind < 0.5:
        name = rng.choice(FOOD)
        modified = rng.random() < 0.3 and any(part in name for part in _BURGER_LIKE)
        modifier = rng.choice(MODIFIERS) if modified else ""
        return Item(name, rng.choice((1, 1, 1, 2, 2, 3, 4, 5, 6)), modifier=modifier)
    if kind < 0.7:
        return Item(rng.choice(SIDES), size=rng.choice(SIZES))
    return Item(rng.choice(DRINKS), rng.choice((1, 1, 1, 2)), size=rng.choice(SIZES))
