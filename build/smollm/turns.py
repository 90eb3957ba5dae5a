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
    return Line(heard, f"Sure, I added {added}. Anything else?")


def first(heard: str, items: str) -> Line:
    return Line(heard, f"Got it, {items}. Anything else?")


def changed(heard: str, old: str, new: str) -> Line:
    return Line(heard, f"Sure, I changed {old} to {new}. Anything else?", (new.lower(),))


def removed(heard: str, what: str) -> Line:
    return Line(heard, f"Okay, I removed {what}. Anything else?", ("removed|took off|taken off",))


def not_sold(heard: str, what: str) -> Line:
    answer = f"Sorry, we don't have {what}. Would you like something else?"
    return Line(heard, answer, ("don't have|do not have|don't sell", what), ("yes", "got it"))


def total(heard: str, total: str) -> Line:
    return Line(heard, f"Your total is {total} so far. Anything else?", (total,))


def done(heard: str, total: str) -> Line:
    answer = f"Thank you. Your total is {total}. Please pull forward to the window."
    return Line(heard, answer, (total, "pull forward|window"), ("anything else",))


def back(heard: str, items: str, total: str) -> Line:
    answer = f"You have {items}. The total is {total}. Anything else?"
    return Line(heard, answer, (items.lower(), total))


def elsewhere(heard: str) -> Line:
    answer = "Sorry, I can only take orders. What can I get for you?"
    return Line(heard, answer, ("only take orders",), ("got it", "don't have"))


def greeted(heard: str) -> Line:
    return Line(heard, "Welcome! What can I get for you today?", ("what can i get",))


def which_size(heard: str, what: str) -> Line:
    return Line(heard, f"Sure, what size {what} would you like?", ("what size",))


def first_which_size(heard: str, items: str, what: str) -> Line:
    answer = f"Got it, {items}. What size {what} would you like?"
    return Line(heard, answer, ("what size",))


def price(heard: str, what: str) -> Line:
    price = money(FOOD[what])
    answer = f"A {what} is {price}. Would you like one?"
    return Line(heard, answer, (what, price))


def sold(heard: str, what: str) -> Line:
    answer = f"Yes, {plural(what)} are {money(FOOD[what])} each. How many would you like?"
    return Line(heard, answer, ("yes", what))


def sold_by_size(heard: str, what: str) -> Line:
    return Line(heard, f"Yes, we have {what}. What size would you like?", ("yes", what))


def declined(heard: str) -> Line:
    return Line(heard, "Okay. Anything else?", ("anything else|what else|what can i get",))
