"""Lines of customers, taken apart: what they name, and the sentence template behind them."""

import re
from typing import Final

from python_backends.ordering.menu import NUMBERS, SIZES, plural
from python_backends.ordering.order import CHANGE, ITEM, any_of

ALIASES: Final = {
    "french fries": "fries",
    "nuggets": "chicken nuggets",
    "hotdog": "hot dog",
    "hotdogs": "hot dogs",
    "ice tea": "iced tea",
    "coca cola": "coke",
    "shake": "milkshake",
    "shakes": "milkshakes",
    "muffin": "blueberry muffin",
    "muffins": "blueberry muffins",
    "cheese burger": "cheeseburger",
    "cheese burgers": "cheeseburgers",
    "oj": "orange juice",
}
"""What customers say, and what the menu has for it."""

_FULL = {full for full in ALIASES.values() if " " in full}
_ALIAS = re.compile(rf"\b({any_of([*_FULL, *ALIASES])})\b")
_WITHOUT = re.compile(r"\b(?:without|minus|skip|hold|leave off|leave out)\s+(?:the\s+|any\s+)?")
_FILLER = re.compile(r"^(?:(?:um+|uh+|okay|so|well|hmm|oh|like|alright|hi|hello|hey)\b[ ,]*)+")


def canonical(heard: str) -> str:
    """Lower case, names as the menu has them, "without x" and "hold the x" as "with no x"."""
    text = _ALIAS.sub(lambda found: ALIASES.get(found[1], found[1]), heard.lower())
    return _WITHOUT.sub("with no ", text)


def template_of(heard: str, absent: tuple[str, ...]) -> str:
    """The sentence template of a line: items, lists of them, changes, sizes and numbers blanked.

    What is sold and what is not (`absent`) are the same blank; punctuation, capitals and what one
    says before beginning ("um", "okay", "hi") do not count.
    """
    text = ITEM.sub(" _item_ ", canonical(heard))
    names = any_of([form for name in absent for form in (name.lower(), plural(name.lower()))])
    numbers = rf"\d+|{any_of(NUMBERS)}"
    for pattern, blank in (
        (rf"\b(?:{names})\b", "_item_"),
        (rf"\b(?:with )?{CHANGE}\b", "_change_"),
        (rf"\b(?:{any_of(SIZES)})\b", "_size_"),
        (rf"\b(?:{numbers})\b", "_number_"),
        (r"[^\w' ]", " "),
        (r"\b(?:a|an|the|some|any|_number_|_size_) (?=\s*_item_)", " "),
        (r"_item_(?:\s+(?:and\s+)?(?:also\s+)?_item_)+", "_item_"),
        (r"\s+", " "),
    ):
        text = re.sub(pattern, f" {blank} " if blank.startswith("_") else blank, text)
    return re.sub(r"\s+", " ", _FILLER.sub("", text.strip())).strip()
