"""What customers of the training dialogs ask for: items with changes, and what is not sold."""

import random
from typing import Final

from build.smollm.held_out import COMBINATIONS
from python_backends.ordering.menu import DRINKS, FOOD, SIDES, SIZES, Item, one, plural

_MEAT = ("turkey", "tuna", "lamb", "salmon", "pulled pork", "egg", "ham", "roast beef", "shrimp")
_BREAD = ("sandwich", "burger", "wrap")
_FRUIT = ("peach", "pumpkin", "lemon", "banana", "strawberry", "carrot")
_BAKED = ("pie", "muffin", "cake")
_COUNTED = (
    *(
        "waffle",
        "pancake",
        "donut",
        "bagel",
        "croissant",
        "kebab",
        "dumpling",
        "meatball",
        "omelet",
    ),
    *(
        "quesadilla",
        "enchilada",
        "corn dog",
        "pretzel",
        "smoothie",
        "cappuccino",
        "latte",
        "espresso",
    ),
    *(
        "cocktail",
        "martini",
        "mojito",
        "energy drink",
        "protein shake",
        "baked potato",
        "fried egg",
    ),
    *(
        "cinnamon roll",
        "crepe",
        "eclair",
        "macaroon",
        "sundae",
        "popsicle",
        "milk tea",
        "ginger ale",
    ),
    *("pork chop", "lamb chop", "crab cake", "fish stick", "spring roll", "egg roll", "samosa"),
    *("newspaper", "phone charger", "T-shirt", "lottery ticket", "hamster", "bicycle"),
    *(f"{meat} {bread}" for meat in _MEAT for bread in _BREAD),
    *(f"{fruit} {baked}" for fruit in _FRUIT for baked in _BAKED),
)
_UNCOUNTED = (
    *("pizza", "sushi", "ramen", "pasta", "spaghetti", "lasagna", "steak", "lobster", "shrimp"),
    *("curry", "fried rice", "noodles", "soup", "tomato soup", "chili", "cheesecake", "falafel"),
    *("oysters", "beer", "wine", "red wine", "whiskey", "champagne", "vodka", "sake", "cider"),
    *(
        "Pepsi",
        "Fanta",
        "Mountain Dew",
        "apple juice",
        "tomato juice",
        "green tea",
        "milk",
        "oat milk",
    ),
    *("bubble tea", "kombucha", "sweet potato fries", "curly fries", "tater tots", "coleslaw"),
    *("mac and cheese", "barbecue ribs", "ribs", "chicken wings", "fried chicken", "meatloaf"),
    *("calamari", "caviar", "tofu", "hummus", "guacamole", "garlic bread", "popcorn", "peanuts"),
    *(
        "chocolate cake",
        "frozen yogurt",
        "gelato",
        "pudding",
        "oatmeal",
        "cereal",
        "scrambled eggs",
    ),
    *(
        "toast",
        "caesar dressing",
        "cigarettes",
        "gasoline",
        "stamps",
        "shoes",
        "flowers",
        "aspirin",
    ),
)
ABSENT: Final = (*_UNCOUNTED, *_COUNTED)
"""Names of what is not sold; of what is counted, the singular."""

_BURGERS = (
    "no onions",
    "no pickles",
    "no tomato",
    "no lettuce",
    "no mayo",
    "no cheese",
    "no ketchup",
)
_MORE_ON_BURGERS = ("no mustard", "no sauce", "extra cheese", "extra bacon", "extra pickles")
_MOST_ON_BURGERS = ("extra onions", "extra lettuce", "extra tomato", "extra ketchup", "extra mayo")
_ON_BREAD = (*_BURGERS, *_MORE_ON_BURGERS, *_MOST_ON_BURGERS, "extra mustard", "extra sauce")
_ON_SALAD = ("no dressing", "extra dressing", "no tomato", "no onions", "extra cheese")
_ON_SIDES = ("no salt", "extra salt", "extra ketchup", "extra sauce")
_IN_COLD = ("no ice", "extra ice")
_IN_HOT = ("no sugar", "extra sugar", "no cream", "extra cream")
_BREAD_LIKE = ("burger", "sandwich", "wrap", "taco", "burrito", "hot dog")


def changes_of(name: str) -> list[str]:
    """What may be changed about an item, without what the held-out customers change."""
    if name in SIDES:
        able: tuple[str, ...] = _ON_SIDES
    elif name in DRINKS:
        hot = name in ("coffee", "hot chocolate")
        able = _IN_HOT if hot else (*_IN_COLD, *(_IN_HOT[:2] if "tea" in name else ()))
    elif name == "salad":
        able = _ON_SALAD
    else:
        able = _ON_BREAD if any(part in name for part in _BREAD_LIKE) else ()
    return [change for change in able if (name, change) not in COMBINATIONS]


def random_item(rng: random.Random) -> Item:
    """Any complete line: a drink or a side has its size."""
    kind = rng.random()
    if kind < 0.55:
        name = rng.choice(list(FOOD))
        item = Item(name, rng.choice((1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 8)))
    elif kind < 0.75:
        item = Item(rng.choice(SIDES), rng.choice((1, 1, 1, 1, 2)), rng.choice(SIZES))
    else:
        item = Item(rng.choice(DRINKS), rng.choice((1, 1, 1, 1, 2, 2, 3)), rng.choice(SIZES))
    share = 0.35 if item.name in FOOD else 0.12
    return Item(item.name, item.count, item.size, random_changes(item.name, rng, share))


def random_changes(name: str, rng: random.Random, share: float) -> tuple[str, ...]:
    """A change or two of an item, so often."""
    able = changes_of(name)
    if not able or rng.random() > share:
        return ()
    changes = rng.sample(able, 2 if rng.random() < 0.2 and len(able) > 2 else 1)
    if len({change.split()[1] for change in changes}) < len(changes):
        changes = changes[:1]
    return tuple(changes)


def random_items(rng: random.Random, count: int) -> list[Item]:
    """So many lines, each of another name."""
    items: dict[str, Item] = {}
    while len(items) < count:
        item = random_item(rng)
        items.setdefault(item.name, item)
    return list(items.values())


def in_general(absent: str) -> str:
    """How it is asked for, and refused, in general: "bagels", "pizza"."""
    return plural(absent) if absent in _COUNTED else absent


def one_of(absent: str, rng: random.Random) -> str:
    """How one, or some, of it is ordered: "a bagel", "two bagels", "pizza"."""
    if absent not in _COUNTED:
        return rng.choice((absent, absent, f"some {absent}"))
    return rng.choice((one(absent), one(absent), f"two {plural(absent)}"))
