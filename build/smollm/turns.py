"""A turn of a held-out conversation: what is said, a good answer, and what any answer must have."""

from dataclasses import dataclass

from python_backends.ordering.menu import FOOD, money, plural


@dataclass(frozen=True)
class Line:
    """What a customer says, a good answer, and what any answer must have.

    `says` are lower-case words, with "|" between those of which one is enough; `never` must be
    missing. The order must change as it does with the good answer. In answer to a question about
    the menu (`menu`) anything on it may be named.
    """

    heard: str
    good: str
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ("sorry",)
    menu: bool = False


def more(heard: str, added: str) -> Line:
    """Something more is ordered."""
    return Line(heard, f"Sure, I added {added}. Anything else?")


def first(heard: str, items: str) -> Line:
    """The first of an order."""
    return Line(heard, f"Got it, {items}. Anything else?")


def changed(heard: str, old: str, new: str) -> Line:
    """A line of the order becomes another one."""
    return Line(heard, f"Sure, I changed {old} to {new}. Anything else?", (new.lower(),))


def removed(heard: str, what: str) -> Line:
    """A line is taken off."""
    return Line(heard, f"Okay, I removed {what}. Anything else?", ("removed",))


def not_sold(heard: str, what: str) -> Line:
    """Asked for in vain."""
    answer = f"Sorry, we don't have {what}. Would you like something else?"
    return Line(heard, answer, ("don't have|do not have|don't sell", what), ("yes", "got it"))


def total(heard: str, amount: str) -> Line:
    """The price so far is asked for."""
    return Line(heard, f"Your total is {amount} so far. Anything else?", (amount,))


def done(heard: str, amount: str) -> Line:
    """The end of an order."""
    answer = f"Thank you. Your total is {amount}. Please pull forward to the window."
    return Line(heard, answer, (amount, "pull forward|window"), ("anything else",))


def back(heard: str, items: str, amount: str) -> Line:
    """The order is to be read back."""
    answer = f"You have {items}. The total is {amount}. Anything else?"
    return Line(heard, answer, (items.lower(), amount))


def elsewhere(heard: str) -> Line:
    """Nothing to do with food."""
    answer = "Sorry, I can only take orders. What can I get for you?"
    return Line(heard, answer, ("only take orders",), ("got it", "don't have"))


def greeted(heard: str) -> Line:
    """A greeting."""
    return Line(heard, "Welcome! What can I get for you today?", ("what can i get",))


def which_size(heard: str, what: str) -> Line:
    """A drink or a side without its size."""
    return Line(heard, f"Sure, what size {what} would you like?", ("what size",))


def first_which_size(heard: str, items: str, what: str) -> Line:
    """The same beside complete items."""
    answer = f"Got it, {items}. What size {what} would you like?"
    return Line(heard, answer, ("what size",))


def price(heard: str, what: str) -> Line:
    """The price of a food."""
    amount = money(FOOD[what])
    return Line(heard, f"A {what} is {amount}. Would you like one?", (what, amount))


def sold(heard: str, what: str) -> Line:
    """Whether a food is sold."""
    answer = f"Yes, {plural(what)} are {money(FOOD[what])} each. How many would you like?"
    return Line(heard, answer, ("yes", what))


def sold_by_size(heard: str, what: str) -> Line:
    """Whether a drink or a side is sold."""
    return Line(heard, f"Yes, we have {what}. What size would you like?", ("yes", what))


def declined(heard: str) -> Line:
    """What was offered is not taken."""
    return Line(heard, "Okay. Anything else?", ("anything else|what else|what can i get",))
