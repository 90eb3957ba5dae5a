"""A conversation in the making, and the fixed parts of its answers."""

import random
from dataclasses import dataclass, field
from typing import Final

from build.smollm.saying import sentence
from python_backends.ordering.menu import Item, joined, money
from python_backends.ordering.order import Order

ANYTHING_ELSE: Final = "Anything else?"
WHAT: Final = "What can I get for you?"
WELCOME: Final = "Welcome! What can I get for you today?"


@dataclass
class Dialog:
    """(customer, answer) lines, and what they have ordered."""

    rng: random.Random
    turns: list[tuple[str, str]] = field(default_factory=list)
    order: Order = field(default_factory=Order)

    def say(self, user: str, answer: str) -> None:
        """Append one exchange; what the customer says is written as a recogniser would."""
        self.turns.append((sentence(user, self.rng), answer))
        self.order = self.order.after(answer)

    def pick(self, phrases: tuple[str, ...], text: str = "", **texts: str) -> str:
        """One of the templates, filled in."""
        return self.rng.choice(phrases).format(text, **texts)

    def chance(self, share: float) -> bool:
        """True so often."""
        return self.rng.random() < share

    @property
    def tail(self) -> str:
        """What is asked at the end of an answer."""
        return ANYTHING_ELSE if self.order.items else WHAT

    @property
    def invitation(self) -> str:
        """The answer to "yes"."""
        return f"Sure, what {'else ' if self.order.items else ''}would you like?"

    @property
    def total(self) -> str:
        """Of the order so far."""
        return money(self.order.cents)

    def added(self, items: list[Item]) -> str:
        """The sentence that confirms items."""
        lead = "Sure, I added" if self.order.items else "Got it,"
        return f"{lead} {joined([item.text for item in items])}."

    def line(self) -> Item | None:
        """A line of the order that its name alone tells apart, the last one more often."""
        names = [item.name for item in self.order.items]
        able = [item for item in self.order.items if names.count(item.name) == 1]
        if not able:
            return None
        return able[-1] if self.chance(0.3) else self.rng.choice(able)

    @property
    def last(self) -> Item:
        """The newest line of the order."""
        return self.order.items[-1]

    def said_back(self, item: Item) -> str:
        """How a customer refers to a line: "the tacos", "the large Coke"."""
        full = self.chance(0.25)
        bare = Item(item.name, item.count, item.size if full or self.chance(0.2) else "")
        text = bare.again
        if item.count > 1 and self.chance(0.6):
            text = text.replace(f"the {text.split()[1]} ", "the ", 1)
        if self.chance(0.12):
            text = f"my {text.removeprefix('the ')}"
        return text
