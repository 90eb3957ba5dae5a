"""Exchanges about the order, the menu and the world, in which nothing is ordered."""

from build.smollm import phrases
from build.smollm.dialog import ANYTHING_ELSE, WELCOME, WHAT, Dialog
from build.smollm.dialog_orders import order
from python_backends.ordering.menu import FOOD, Item, plural
from python_backends.ordering.order import Order

_LISTS = (
    (phrases.MENU, "We have burgers, sandwiches, tacos, sides and drinks. What would you like?"),
    (phrases.MENU, "We have burgers, sandwiches, tacos, sides and drinks. What would you like?"),
    (
        phrases.DRINK_LIST,
        "We have Coke, Sprite, lemonade, iced tea, coffee and more. Which would you like?",
    ),
    (
        phrases.DRINK_LIST,
        "We have Coke, Sprite, lemonade, iced tea, coffee and more. Which would you like?",
    ),
    (
        phrases.SIDE_LIST,
        "We have fries, onion rings, chicken nuggets, hash browns and mozzarella sticks. "
        "Which would you like?",
    ),
    (
        phrases.BURGER_LIST,
        "We have hamburgers, cheeseburgers, bacon burgers and veggie burgers. "
        "Which would you like?",
    ),
    (
        phrases.SWEET_LIST,
        "We have apple pies, cookies, brownies, muffins and ice cream. Which would you like?",
    ),
    (
        phrases.SANDWICH_LIST,
        "We have chicken sandwiches, fish sandwiches and chicken wraps. Which would you like?",
    ),
    (phrases.GREEN_LIST, "We have veggie burgers and salads. Which would you like?"),
    (phrases.SIZE_LIST, "We have small, medium and large. Which size would you like?"),
    (phrases.SIZE_LIST, "We have small, medium and large. Which size would you like?"),
)


def greet(dialog: Dialog) -> None:
    """The customer says hello, and is asked what it may be."""
    if dialog.chance(0.1):
        dialog.say(dialog.pick(phrases.CAN_YOU_HEAR), f"Yes, I can hear you. {WHAT}")
        return
    dialog.say(dialog.pick(phrases.HELLO), WELCOME)
    if dialog.chance(0.1):
        dialog.say(dialog.pick(phrases.YES_ALONE), dialog.invitation)


def ask_about_menu(dialog: Dialog) -> None:
    """What there is of a kind."""
    if dialog.chance(0.1):
        answer = "Many people like our double cheeseburger. Would you like one?"
        dialog.say(dialog.pick(phrases.RECOMMEND), answer)
        if dialog.chance(0.4):
            item = Item("double cheeseburger")
            dialog.say(dialog.pick(phrases.YES_ONE), f"{dialog.added([item])} {ANYTHING_ELSE}")
        return
    asked, answer = dialog.rng.choice(_LISTS)
    opening = dialog.rng.choice(phrases.OPENINGS) if dialog.chance(0.3) else ""
    dialog.say(f"{opening}{dialog.pick(asked)}", answer)


def leave_domain(dialog: Dialog) -> None:
    """Something that has nothing to do with food."""
    opening = dialog.rng.choice(phrases.OPENINGS) if dialog.chance(0.2) else ""
    user = f"{opening}{dialog.pick(phrases.ELSEWHERE)}"
    dialog.say(user, f"Sorry, I can only take orders. {dialog.tail}")


def ask_total(dialog: Dialog) -> None:
    """What it costs so far."""
    user = dialog.pick(phrases.TOTAL)
    user = f"{dialog.rng.choice(phrases.OPENINGS)}{user}" if dialog.chance(0.3) else user
    if dialog.order.items:
        dialog.say(user, f"Your total is {dialog.total} so far. {ANYTHING_ELSE}")
    else:
        dialog.say(user, f"You have not ordered anything yet. {WHAT}")


def read_back(dialog: Dialog) -> None:
    """What is ordered so far."""
    user = dialog.pick(phrases.READ_BACK)
    user = f"{dialog.rng.choice(phrases.OPENINGS)}{user}" if dialog.chance(0.3) else user
    dialog.say(user, _told(dialog.order, dialog))


def _told(order: Order, dialog: Dialog) -> str:
    if not order.items:
        return f"You have not ordered anything yet. {WHAT}"
    return f"You have {order.text}. The total is {dialog.total}. {ANYTHING_ELSE}"


def pardon(dialog: Dialog) -> None:
    """The customer did not understand: the order is told again, or the question is."""
    if not dialog.turns or not dialog.turns[-1][1].endswith((ANYTHING_ELSE, WHAT)):
        return
    answer = _told(dialog.order, dialog) if dialog.order.items else WHAT
    dialog.say(dialog.pick(phrases.PARDON), answer)


def how_many(dialog: Dialog) -> None:
    """How many of one item are in the order."""
    item = dialog.line()
    if item is None or (item.name not in FOOD and item.count == 1):
        order(dialog)
        return
    user = dialog.pick(phrases.HOW_MANY, plural(item.name))
    dialog.say(user, f"You have {item.text}. {ANYTHING_ELSE}")


def is_in_order(dialog: Dialog) -> None:
    """Whether something is in the order that is."""
    item = dialog.line()
    if item is None:
        order(dialog)
        return
    user = dialog.pick(phrases.IS_IN, dialog.said_back(item))
    dialog.say(user, f"Yes, you have {item.text}. {ANYTHING_ELSE}")


def say_yes(dialog: Dialog) -> None:
    """ "Yes" to "Anything else?"."""
    if dialog.turns[-1][1].endswith(ANYTHING_ELSE):
        dialog.say(dialog.pick(phrases.YES_ALONE), dialog.invitation)


def thank(dialog: Dialog) -> None:
    """Thanks before the end."""
    dialog.say(
        dialog.pick(("thank you", "thanks", "great, thanks")), f"You're welcome. {dialog.tail}"
    )


def wait(dialog: Dialog) -> None:
    """The customer needs time."""
    dialog.say(dialog.pick(phrases.WAIT), "Sure, take your time.")


def unclear(dialog: Dialog) -> None:
    """Half a sentence."""
    dialog.say(dialog.pick(phrases.UNCLEAR), "Sorry, could you say that again?")


def pay(dialog: Dialog) -> None:
    """How one pays."""
    dialog.say(dialog.pick(phrases.PAY), f"You can pay at the window. {dialog.tail}")


def finish(dialog: Dialog) -> None:
    """The end of the order, with its total; or of a visit without one."""
    if not dialog.turns or dialog.turns[-1][1].endswith(
        ("size would you like?", "How many would you like?")
    ):
        return
    user = dialog.pick(phrases.DONE)
    if dialog.order.items:
        answer = f"Thank you. Your total is {dialog.total}. Please pull forward to the window."
    else:
        answer = "Okay. Have a nice day!"
    dialog.say(user, answer)


def thank_at_the_end(dialog: Dialog) -> None:
    """What is said when all is said."""
    if not dialog.turns:
        return
    dialog.say(dialog.pick(phrases.THANKS), "You're welcome! Please pull forward to the window.")
