"""Ten conversations of five turns that training must never see: the measure of the ordering model.

`dialogs.py` draws again whatever shares a sentence template or an item with one of its changes with
them, and `tests/build/test_held_out.py` proves it on every line that training uses.
"""

from typing import Final

from build.smollm.lines import canonical, template_of
from build.smollm.turns import (
    Line,
    back,
    changed,
    done,
    elsewhere,
    first,
    more,
    not_sold,
    removed,
    total,
)
from python_backends.ordering.order import items_in

ABSENT: Final = (
    "clam chowder",
    "tiramisu",
    "gyros",
    "mashed potatoes",
    "ravioli",
    "nachos",
)
"""What these customers ask for in vain; in training nobody does."""


CONVERSATIONS: Final = (
    (
        first(
            "Evening! My kids are after two cheeseburgers without pickles and a large Sprite.",
            "two cheeseburgers with no pickles and a large Sprite",
        ),
        more("Oh, and throw in a burrito, would you?", "a burrito"),
        total("What does my bill look like at the moment?", "$15.50"),
        changed(
            "On second thought the Sprite should be a small.", "the large Sprite", "a small Sprite"
        ),
        done("Right, we're finished here.", "$14.50"),
    ),
    (
        Line("Good day to you.", "Welcome! What can I get for you today?", ("what can i get",)),
        Line(
            "Which beverages are there?",
            "We have Coke, Sprite, lemonade, iced tea and coffee. Which would you like?",
            ("coke", "lemonade|tea|coffee"),
            menu=True,
        ),
        first("Then an iced tea with extra ice, medium sized.", "a medium iced tea with extra ice"),
        not_sold("Would clam chowder be possible?", "clam chowder"),
        done("Fine, then leave it at the tea.", "$2"),
    ),
    (
        first("We'd love three tacos with extra cheese.", "three tacos with extra cheese"),
        not_sold("Is any tiramisu left?", "tiramisu"),
        Line(
            "How about brownies?",
            "Yes, brownies are $1.50 each. How many would you like?",
            ("brownies|brownie", "how many"),
        ),
        more("Make it four of those.", "four brownies"),
        back(
            "Read me back everything, would you?",
            "three tacos with extra cheese and four brownies",
            "$15",
        ),
    ),
    (
        Line(
            "Somebody here is hungry for a hot dog with no mustard plus onion rings.",
            "Got it, a hot dog with no mustard. What size onion rings would you like?",
            ("what size", "onion rings"),
        ),
        more("I'd go for the large ones.", "large onion rings"),
        removed("Hmm, lose the hot dog.", "the hot dog with no mustard"),
        more("In its place a fish sandwich with no mayo.", "a fish sandwich with no mayo"),
        total("So what am I paying?", "$7.50"),
    ),
    (
        elsewhere("Could you tell me who won the election?"),
        first(
            "Never mind. Put me down for a veggie burger with extra pickles.",
            "a veggie burger with extra pickles",
        ),
        Line(
            "Yep, there's something more.",
            "Sure, what else would you like?",
            ("what else|what would you like|what can i get",),
        ),
        more("A milkshake, large if you can.", "a large milkshake"),
        done("Nah, we're all set.", "$7"),
    ),
    (
        Line(
            "What would a double cheeseburger set me back?",
            "A double cheeseburger is $5.50. Would you like one?",
            ("double cheeseburger", "$5.50"),
        ),
        first(
            "Okay, one of them, but leave off the ketchup.", "a double cheeseburger with no ketchup"
        ),
        not_sold("You wouldn't happen to have gyros?", "gyros"),
        more("Alright, two large root beers on top of that.", "two large root beers"),
        back(
            "Come again, what's in my order?",
            "a double cheeseburger with no ketchup and two large root beers",
            "$10.50",
        ),
    ),
    (
        first(
            "The missus wants a chicken wrap with extra sauce and I fancy a hamburger.",
            "a chicken wrap with extra sauce and a hamburger",
        ),
        changed("Bump the hamburger up to two.", "the hamburger", "two hamburgers"),
        not_sold("Any chance of mashed potatoes?", "mashed potatoes"),
        more("Medium hash browns will do, then.", "medium hash browns"),
        done("And that wraps it up.", "$13.50"),
    ),
    (
        Line(
            "Grab me a coffee, but skip the sugar.",
            "Sure, what size coffee would you like?",
            ("what size",),
        ),
        first("Small one will be fine.", "a small coffee with no sugar"),
        more("My daughter would like an ice cream cone as well.", "an ice cream cone"),
        elsewhere("Are you any good at algebra?"),
        removed("Scrap the ice cream cone, sorry about that.", "the ice cream cone"),
    ),
    (
        first(
            "For the office we need six cookies and three large coffees.",
            "six cookies and three large coffees",
        ),
        changed("Bring the cookies down to four.", "the six cookies", "four cookies"),
        not_sold("Would ravioli be on your list?", "ravioli"),
        Line(
            "How many coffees did you put down?",
            "You have three large coffees. Anything else?",
            ("three large coffees",),
        ),
        done("Great, wrap it up please.", "$11.50"),
    ),
    (
        Line(
            "One chicken sandwich with no tomato for me, and nachos.",
            "Got it, a chicken sandwich with no tomato. Sorry, we don't have nachos. "
            "Anything else?",
            ("don't have nachos|do not have nachos|don't sell nachos",),
            (),
        ),
        Line(
            "What size drinks do you pour?",
            "We have small, medium and large. Which size would you like?",
            ("small", "medium", "large"),
            menu=True,
        ),
        more("In that case, a medium lemonade.", "a medium lemonade"),
        changed(
            "Swap the lemonade for orange juice of the same size.",
            "the medium lemonade",
            "a medium orange juice",
        ),
        done("Thanks, no more for us.", "$6.50"),
    ),
)


def changed_items(text: str) -> set[tuple[str, str]]:
    """Every item with each of its changes that a text names."""
    return {(item.name, change) for item in items_in(canonical(text)) for change in item.changes}


COMBINATIONS: Final = frozenset(
    pair for lines in CONVERSATIONS for line in lines for pair in changed_items(line.good)
)
"""(item, change) that training leaves out."""


def templates(absent: tuple[str, ...]) -> frozenset[str]:
    """The sentence templates of these customers; `absent` are names that training knows."""
    known = (*ABSENT, *absent)
    return frozenset(template_of(line.heard, known) for lines in CONVERSATIONS for line in lines)
