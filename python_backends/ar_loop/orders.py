"""The running order: what the assistant has confirmed so far, read from its own replies.

Four kinds of sentence count: "Got it, ..." and "... added ..." add, "... changed X to Y" replaces,
"... removed X" takes away ("removed everything" takes all). The model writes them, this only reads
them, so the order is what the customer was told that it is. Everything else, such as reading the
order back, changes nothing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from python_backends.ar_loop.menu import (
    CHANGES,
    DRINKS,
    FOOD,
    NUMBERS,
    SIDES,
    SIZES,
    Item,
    is_sized,
    joined,
    money,
    plural,
)

LONGEST_REPLY: Final = 1000
"""Characters of a line that may be a reply of ours: 64 tokens are far less. Longer ones are not
read, so that a megabyte of history costs nothing."""

MOST_REPLIES: Final = 200
"""Replies that are read, the newest."""

MOST_LINES: Final = 12
"""Lines of an order that are written out in the prompt; the total is always of all."""

MOST_OF_ONE: Final = 99

_WORDS = {word: value for value, word in enumerate(NUMBERS, start=1)}
_NAMES = {form.lower(): name for name in (*FOOD, *SIDES, *DRINKS) for form in (name, plural(name))}


def any_of(words: Iterable[str]) -> str:
    """A pattern that finds the longest of some words."""
    return "|".join(sorted(words, key=len, reverse=True))


CHANGE = rf"(?:{any_of(CHANGES)})"
ITEM = re.compile(
    rf"\b(?:(?P<count>an?|\d{{1,2}}|{any_of(NUMBERS)})\s+)?(?:(?P<size>{any_of(SIZES)})\s+)?"
    rf"(?P<name>{any_of(_NAMES)})\b(?:\s+with\s+(?P<changes>{CHANGE}(?:\s+and\s+{CHANGE})*)\b)?",
    re.IGNORECASE,
)
"""Something on the menu as it is said: groups `count`, `size`, `name`, `changes`."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_ADDED = re.compile(r"^got it\b(.*)|.*\badded\b(.*)", re.IGNORECASE | re.DOTALL)
_CHANGED = re.compile(r".*?\bchanged\b(.*?)\bto\b(.*)", re.IGNORECASE | re.DOTALL)
_REMOVED = re.compile(r".*?\bremoved\b(.*)", re.IGNORECASE | re.DOTALL)


def items_in(text: str) -> list[Item]:
    """Everything on the menu that a text names, in its order."""
    return [_item(found) for found in ITEM.finditer(text)]


def _item(found: re.Match[str]) -> Item:
    count, changes = (found["count"] or "a").lower(), (found["changes"] or "").lower()
    name = _NAMES[found["name"].lower()]
    number = int(count) if count.isdigit() else _WORDS.get(count, 1)
    size = (found["size"] or "").lower() if is_sized(name) else ""
    return Item(
        name, max(1, number), size, tuple(re.split(r"\s+and\s+", changes)) if changes else ()
    )


@dataclass(frozen=True)
class Order:
    """What is ordered so far."""

    items: tuple[Item, ...] = ()

    @property
    def cents(self) -> int:
        """What it costs."""
        return sum(item.cents for item in self.items)

    @property
    def text(self) -> str:
        """The order as a customer is told it; empty without any."""
        return joined([item.text for item in self.items]) if self.items else ""

    @property
    def line(self) -> str:
        """The order as the prompt has it: "[Order: two tacos and a large Coke. Total: $7.50]"."""
        if not self.items:
            return "[No order yet]"
        texts = [item.text for item in self.items]
        if len(texts) > MOST_LINES:
            texts = [f"{len(texts) - MOST_LINES + 1} other items", *texts[1 - MOST_LINES :]]
        return f"[Order: {joined(texts)}. Total: {money(self.cents)}]"

    def after(self, reply: str) -> "Order":
        """The order after one reply of the assistant's."""
        if len(reply) > LONGEST_REPLY:
            return self
        order = self
        for sentence in _SENTENCE_END.split(reply.strip()):
            order = order._after_sentence(sentence)
        return order

    def _after_sentence(self, sentence: str) -> "Order":
        if changed := _CHANGED.match(sentence):
            return self._changed(items_in(changed[1]), items_in(changed[2]))
        if removed := _REMOVED.match(sentence):
            if "everything" in removed[1].lower():
                return Order()
            order = self
            for item in items_in(removed[1]):
                order = order._without(order.find(item))
            return order
        if added := _ADDED.match(sentence):
            order = self
            for item in items_in(added[1] or added[2]):
                order = order.plus(item)
            return order
        return self

    def _changed(self, old: list[Item], new: list[Item]) -> "Order":
        """The new items stand where the first of the old ones stood."""
        order, at = self, len(self.items)
        for item in old:
            found = order.find(item)
            if found is not None:
                order, at = order._without(found), min(at, found)
        for item in reversed(new):
            order = order.plus(item, at)
        return order

    def plus(self, item: Item, at: int | None = None) -> "Order":
        """With one more line; the same again makes a line longer."""
        if is_sized(item.name) and not item.size:
            item = replace(item, size="medium")
        for index, line in enumerate(self.items):
            if line.times(1) == item.times(1):
                count = min(line.count + item.count, MOST_OF_ONE)
                return Order((*self.items[:index], line.times(count), *self.items[index + 1 :]))
        at = len(self.items) if at is None else at
        return Order((*self.items[:at], item, *self.items[at:]))

    def find(self, wanted: Item) -> int | None:
        """Where the line stands that is meant: of its name, the one most alike, the newest."""
        alike = [
            (_likeness(line, wanted), index)
            for index, line in enumerate(self.items)
            if line.name == wanted.name
        ]
        return max(alike)[1] if alike else None

    def _without(self, index: int | None) -> "Order":
        return self if index is None else Order((*self.items[:index], *self.items[index + 1 :]))


def _likeness(line: Item, wanted: Item) -> tuple[bool, bool, bool]:
    return (line.size == wanted.size, line.changes == wanted.changes, line.count == wanted.count)


def order_after(replies: Iterable[str]) -> Order:
    """The order after some replies of the assistant's, oldest first."""
    order = Order()
    for reply in replies:
        order = order.after(reply)
    return order
