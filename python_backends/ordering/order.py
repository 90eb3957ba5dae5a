"""The running order: what the assistant has confirmed so far, read from its own replies.

Four verbs count: "Got it, ..." and "... added ..." add, "... changed X to Y" replaces, "... removed
X" takes away ("removed everything" takes all). The model writes them, this only reads them, so the
order is what the customer was told that it is. Everything else, such as reading the order back,
changes nothing. What is said by no number or name that we know confirms nothing.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from python_backends.ordering.menu import (
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
"""Characters of a line that may be a reply of ours: 256 tokens, the most that may be asked for, are
fewer. Longer ones are not read."""

MOST_LINES: Final = 40
"""Lines that an order can have: what is confirmed beyond is not kept."""

MOST_WRITTEN: Final = 12
LONGEST_WRITTEN: Final = 600
"""Lines and characters of an order that are written out in the prompt, the newest of them; the
total is always of all. 600 characters are 200 tokens at most."""

MOST_OF_ONE: Final = 999
MOST_CHANGES: Final = 4
"""Changes of one item that are read."""

_LARGER = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_WORDS = {word: value for value, word in enumerate((*NUMBERS, *_LARGER, "twenty"), start=1)}
_COUNTS = _WORDS | {"a": 1, "an": 1, "a dozen": 12, "half a dozen": 6, "a couple of": 2}
_NAMES = {form.lower(): name for name in (*FOOD, *SIDES, *DRINKS) for form in (name, plural(name))}


def any_of(words: Iterable[str]) -> str:
    """A pattern that finds the longest of some words."""
    return "|".join(sorted(words, key=len, reverse=True))


CHANGE = rf"(?:{any_of(CHANGES)})"
_NEXT_CHANGE = rf"(?:,\s*|,?\s+and\s+){CHANGE}"
ITEM = re.compile(
    rf"\b(?:(?P<count>\d{{1,3}}|{any_of(_COUNTS)})\s+)?(?:(?P<size>{any_of(SIZES)})\s+)?"
    rf"(?P<name>{any_of(_NAMES)})\b"
    rf"(?:\s+with\s+(?P<changes>{CHANGE}(?:{_NEXT_CHANGE}){{0,{MOST_CHANGES - 1}}})\b)?",
    re.IGNORECASE,
)
"""Something on the menu as it is said: groups `count`, `size`, `name`, `changes`."""

_NOT_SO = re.compile(r"(?:\bno|\bnot|\bwithout|\d|[\d$]\.?)\s*$", re.IGNORECASE)
"""What stands before an item that is none, or before the rest of a number that is not read."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_VERB = re.compile(
    r"(?P<no>\bnot|\bnever|n't)?\s*\b(?P<verb>got it|added|changed|removed)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Named:
    """An item as a text names it."""

    item: Item
    counted: bool
    """By a number or "a": "the tacos" are as many as there are."""


def items_in(text: str) -> list[Item]:
    """Everything on the menu that a text names, in its order."""
    return [named.item for named in _named(text)]


def _named(text: str) -> Iterator[Named]:
    for found in ITEM.finditer(text):
        if not _NOT_SO.search(text[max(0, found.start() - 10) : found.start()]):
            yield Named(_item(found), found["count"] is not None)


def _item(found: re.Match[str]) -> Item:
    count = (found["count"] or "a").lower()
    name = _NAMES[found["name"].lower()]
    size = (found["size"] or "").lower() if is_sized(name) else ""
    changes = dict.fromkeys(re.findall(CHANGE, (found["changes"] or "").lower()))
    number = int(count) if count.isdigit() else _COUNTS[count]
    return Item(name, max(1, number), size, tuple(changes))


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
        left_out = len(texts) - MOST_WRITTEN + 1 if len(texts) > MOST_WRITTEN else 0
        while sum(map(len, texts[left_out:])) > LONGEST_WRITTEN:
            left_out += 1
        if left_out:
            texts = [f"{left_out} other item{'s' * (left_out > 1)}", *texts[left_out:]]
        return f"[Order: {joined(texts)}. Total: {money(self.cents)}]"

    def after(self, reply: str) -> "Order":
        """The order after one reply of the assistant's."""
        order = self
        for verb, what in clauses(reply):
            order = order._after_clause(verb, what)
        return order

    def _after_clause(self, verb: str, what: str) -> "Order":
        if verb == "changed":
            old, _, new = what.partition(" to ")
            return self._changed(list(_named(old)), items_in(new))
        if verb == "removed":
            return self._removed(what)
        order = self
        for item in items_in(what):
            order = order.plus(item)
        return order

    def _removed(self, what: str) -> "Order":
        """Without what is named; "everything but ..." leaves that."""
        named = list(_named(what))
        if "everything" in what.lower():
            left = {self.find(one.item) for one in named}
            return Order(tuple(item for at, item in enumerate(self.items) if at in left))
        order = self
        for one in named:
            order = order._less(one)[0]
        return order

    def _changed(self, old: list[Named], new: list[Item]) -> "Order":
        """The new items stand where the first of the old ones stood; without any nothing changes.

        What was never ordered has nothing taken from it, but its new items were promised.
        """
        if not new:
            return self
        order, at = self, len(self.items)
        for named in old:
            order, found = order._less(named)
            at = at if found is None else min(at, found)
        for item in reversed(new):
            order = order.plus(item, at)
        return order

    def _less(self, named: Named) -> tuple["Order", int | None]:
        """Without the line that is meant, or with fewer of it; and where the next one stands."""
        index = self.find(named.item)
        if index is None:
            return self, None
        line = self.items[index]
        if named.counted and named.item.count < line.count:
            fewer = line.times(line.count - named.item.count)
            return self._with(index, fewer), index + 1
        return Order((*self.items[:index], *self.items[index + 1 :])), index

    def _with(self, index: int, line: Item) -> "Order":
        return Order((*self.items[:index], line, *self.items[index + 1 :]))

    def plus(self, item: Item, at: int | None = None) -> "Order":
        """With one more line; the same again makes a line longer."""
        if is_sized(item.name) and not item.size:
            item = replace(item, size="medium")
        for index, line in enumerate(self.items):
            if _kind(line) == _kind(item):
                return self._with(index, line.times(min(line.count + item.count, MOST_OF_ONE)))
        if len(self.items) == MOST_LINES:
            return self
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


def _kind(item: Item) -> tuple[str, str, frozenset[str]]:
    """What makes two lines one; the order in which changes are named does not count."""
    return item.name, item.size, frozenset(item.changes)


def _likeness(line: Item, wanted: Item) -> tuple[bool, bool, bool]:
    return (
        line.size == wanted.size,
        frozenset(line.changes) == frozenset(wanted.changes),
        line.count == wanted.count,
    )


def clauses(reply: str) -> Iterator[tuple[str, str]]:
    """Every verb of a reply that counts, in lower case, with what follows it up to the next one or
    the end of the sentence; denied ones are left out, and so is what is too long for a reply."""
    if len(reply) > LONGEST_REPLY:
        return
    for sentence in _SENTENCE_END.split(reply.strip()):
        found = list(_VERB.finditer(sentence))
        ends = [*(verb.start() for verb in found[1:]), len(sentence)]
        for verb, end in zip(found, ends, strict=False):
            if not verb["no"]:
                yield verb["verb"].lower(), sentence[verb.end() : end]


def orders_before(lines: Iterable[tuple[str, str]]) -> Iterator[Order]:
    """The order before each (role, text) of a conversation, and after the last one."""
    order = Order()
    for role, text in lines:
        yield order
        if role == "assistant":
            order = order.after(text)
    yield order


def order_after(replies: Iterable[str]) -> Order:
    """The order after some replies of the assistant's, oldest first."""
    order = Order()
    for reply in replies:
        order = order.after(reply)
    return order
