"""Seeded drive-through conversations: what the ordering LoRA is trained on.

Every line is our own template over the menu; nothing is copied from a data set. The customer's side
is varied the way a recogniser writes it: digits, lost punctuation or capitals, fillers.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from build.smollm.menu import (
    ABSENT,
    DRINKS,
    FOOD,
    NUMBERS,
    SIDES,
    SIZES,
    Item,
    listed,
    one,
    plural,
    random_item,
)

_FIRST = (
    "I would like {} please.",
    "Can I get {}?",
    "I'll have {}.",
    "Could I have {}, please?",
    "I want {}.",
    "Hi, can I get {} please?",
    "Let me get {}.",
    "Give me {}.",
    "I'd like {}.",
    "Hello, I'd like to order {}.",
    "May I have {}?",
    "I'll take {} please.",
    "Hi, I would like {}.",
    "Just {} please.",
)
_MORE = (
    "And {} please.",
    "Also {}.",
    "Can I also get {}?",
    "Add {}.",
    "Yes, {}.",
    "Yes, and {} please.",
    "Yeah, can I get {}?",
    "I would also like {}.",
    "Could you add {}?",
)
_INSTEAD = (
    "Make that {} instead.",
    "Actually, make it {}.",
    "Change that to {} please.",
    "No, I meant {}.",
    "Sorry, I'd rather have {}.",
    "Can you change that to {}?",
    "Wait, make that {}.",
)
_WITHOUT = ("Remove the {}.", "Take off the {} please.", "No {} after all.", "Cancel the {}.")
_ASK = (
    "Do you have {}?",
    "Do you sell {}?",
    "Do you have any {}?",
    "Is there {}?",
    "Have you got {}?",
)
_WISH = (
    "Can I get {}?",
    "I want some {}.",
    "I'd like {} please.",
    "Do you serve {}?",
    "And {} please.",
    "I'll have {}.",
)
_HELLO = (
    "Hi.",
    "Hello.",
    "Hey there.",
    "Good evening.",
    "Good morning.",
    "Hello, can you hear me?",
)
_DONE = (
    "That's all.",
    "No, that's it.",
    "That will be all, thanks.",
    "No thanks, that is everything.",
    "No thanks, that is all.",
    "No, I'm good.",
    "That's it, thank you.",
    "No.",
    "Nothing else.",
)
_THANKS = (
    "Thank you.",
    "Thanks.",
    "Thanks a lot.",
    "Thank you very much.",
    "Okay, thank you, bye.",
)
_PRICE = ("How much is {}?", "What does {} cost?", "What's the price of {}?")
_MENU = ("What do you have?", "What's on the menu?", "What can I order?", "What do you sell?")
_TOPICS = ("the moon", "history", "football", "my homework", "the president", "Paris", "dinosaurs")
_DOINGS = ("tell me a joke", "sing a song", "call my mother", "book a flight", "write a poem")
_CHAT = (
    "Who are you?",
    "What is your name?",
    "How are you?",
    "Are you a robot?",
    "What time is it?",
    "What's the weather like?",
    "Who won the game last night?",
    "Where is the nearest gas station?",
    "Do you like music?",
    "What day is today?",
)

ANYTHING_ELSE = "Anything else?"
WELCOME = "Welcome! What can I get for you today?"
FAREWELL = "Great, thank you for your order. Please pull forward to the window."
THANKS = "You're welcome! Please pull forward to the window."
WHAT_ELSE = "Sure, what else would you like?"
ONLY_ORDERS = "Sorry, I can only take orders. What can I get for you?"
PRICES = "Sorry, I don't know the prices. They are on the board."
MENU = "We have burgers, sandwiches, sides and drinks. What would you like?"
DRINK_LIST = "We have Coke, Sprite, lemonade, iced tea and coffee. Which would you like?"
SIZE_LIST = "We have small, medium and large. Which size would you like?"


@dataclass
class Dialog:
    """A conversation in the making: (customer, answer) lines, and what is ordered so far."""

    rng: random.Random
    turns: list[tuple[str, str]] = field(default_factory=list)
    order: list[Item] = field(default_factory=list)

    def say(self, user: str, answer: str) -> None:
        """Append one exchange."""
        self.turns.append((as_heard(self.rng, user), answer))

    def pick(self, templates: tuple[str, ...], text: str = "") -> str:
        """One of the templates, filled in."""
        return self.rng.choice(templates).format(text)


def sample(rng: random.Random) -> list[tuple[str, str]]:
    """One conversation of one to six exchanges: (customer, answer)."""
    dialog = Dialog(rng)
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4, 5))):
        _pick_exchange(dialog)(dialog)
    if dialog.order and rng.random() < 0.4:
        dialog.say(dialog.pick(_DONE), FAREWELL)
        if rng.random() < 0.2:
            dialog.say(dialog.pick(_THANKS), THANKS)
    return dialog.turns


def as_heard(rng: random.Random, text: str) -> str:
    """A spoken line as a recogniser may write it."""
    if rng.random() < 0.3:
        for value, word in enumerate(NUMBERS[1:], start=2):
            text = text.replace(f" {word} ", f" {value} ")
    if rng.random() < 0.3:
        text = text.replace(" with no ", " without ")
    if rng.random() < 0.1:
        text = f"{rng.choice(('Um', 'Uh', 'Okay', 'So'))}, {text[0].lower()}{text[1:]}"
        text = text.replace(", i ", ", I ").replace(", i'", ", I'")
    if rng.random() < 0.1:
        text = text.rstrip(".?")
    return text.lower() if rng.random() < 0.08 else text


def _order(dialog: Dialog) -> None:
    items = [random_item(dialog.rng) for _ in range(dialog.rng.choice((1, 1, 2, 2, 3)))]
    more = bool(dialog.order) and dialog.rng.random() < 0.7
    lead = "Sure, I added" if dialog.order else "Got it,"
    dialog.say(
        dialog.pick(_MORE if more else _FIRST, listed(items)),
        f"{lead} {listed(items)}. {ANYTHING_ELSE}",
    )
    dialog.order += items


def _refuse(dialog: Dialog) -> None:
    name = dialog.rng.choice(ABSENT)
    wished = dialog.rng.random() < 0.5
    dialog.say(
        dialog.pick(_WISH if wished else _ASK, name),
        f"Sorry, we don't have {name}. Would you like something else?",
    )


def _order_and_refuse(dialog: Dialog) -> None:
    item, name = random_item(dialog.rng), dialog.rng.choice(ABSENT)
    dialog.say(
        dialog.pick(_FIRST, f"{item.text} and {name}"),
        f"Got it, {item.text}. Sorry, we don't have {name}. {ANYTHING_ELSE}",
    )
    dialog.order.append(item)


def _ask_food(dialog: Dialog) -> None:
    name = dialog.rng.choice(FOOD)
    dialog.say(
        dialog.pick(_ASK, plural(name)),
        f"Yes, we have {plural(name)}. How many would you like?",
    )
    if dialog.rng.random() < 0.6:
        item = Item(name, dialog.rng.randint(1, 6))
        count = NUMBERS[item.count - 1]
        said = dialog.pick(("{}.", "{} please.", "Just {}.", "I'll take {}."), count)
        dialog.say(
            f"{said[0].upper()}{said[1:]}",
            f"Got it, {item.text}. {ANYTHING_ELSE}",
        )
        dialog.order.append(item)


def _ask_sized(dialog: Dialog) -> None:
    name = dialog.rng.choice(DRINKS + SIDES)
    if dialog.rng.random() < 0.5:
        user, lead = dialog.pick(_ASK, name), f"Yes, we have {name}."
    else:
        wish = name if name in SIDES else one(name)
        user, lead = dialog.pick(_MORE if dialog.order else _FIRST, wish), f"Sure, {name}."
    dialog.say(user, f"{lead} What size would you like?")
    if dialog.rng.random() < 0.6:
        item = Item(name, size=dialog.rng.choice(SIZES))
        said = dialog.pick(("{}.", "{} please.", "A {} one.", "{}, please."), item.size)
        dialog.say(f"{said[0].upper()}{said[1:]}", f"Got it, {item.text}. {ANYTHING_ELSE}")
        dialog.order.append(item)


def _correct(dialog: Dialog) -> None:
    item = random_item(dialog.rng)
    dialog.say(
        dialog.pick(_INSTEAD, item.text), f"Sure, I changed it to {item.text}. {ANYTHING_ELSE}"
    )
    dialog.order[-1] = item


def _remove(dialog: Dialog) -> None:
    item = dialog.rng.choice(dialog.order)
    name = plural(item.name) if item.count > 1 else item.name
    dialog.say(dialog.pick(_WITHOUT, name), f"Okay, I removed the {name}. {ANYTHING_ELSE}")
    dialog.order.remove(item)


def _say_yes(dialog: Dialog) -> None:
    dialog.say(
        dialog.pick(("Yes.", "Yes please.", "Yeah.", "Yes, one more thing.", "One moment.")),
        WHAT_ELSE,
    )


def _greet(dialog: Dialog) -> None:
    dialog.say(dialog.pick(_HELLO), WELCOME)


def _ask_about_menu(dialog: Dialog) -> None:
    kind = dialog.rng.randrange(4)
    if kind == 0:
        dialog.say(dialog.pick(_MENU), MENU)
    elif kind == 1:
        dialog.say(dialog.pick(("What drinks do you have?", "What is there to drink?")), DRINK_LIST)
    elif kind == 2:
        dialog.say(dialog.pick(("What sizes do you have?", "Which sizes are there?")), SIZE_LIST)
    else:
        dialog.say(dialog.pick(_PRICE, one(dialog.rng.choice(FOOD + DRINKS))), PRICES)


def _leave_domain(dialog: Dialog) -> None:
    first, second = (dialog.rng.choice(NUMBERS) for _ in range(2))
    sums = tuple(f"What is {first} {sign} {second}?" for sign in ("plus", "times", "minus"))
    topics = ("Tell me about {}.", "What do you know about {}?", "Can you help me with {}?")
    doings = ("Can you {}?", "Please {}.", "Could you {} for me?")
    kind = dialog.rng.randrange(4)
    if kind == 0:
        user = dialog.pick(sums)
    elif kind == 1:
        user = dialog.pick(topics, dialog.rng.choice(_TOPICS))
    elif kind == 2:
        user = dialog.pick(doings, dialog.rng.choice(_DOINGS))
    else:
        user = dialog.pick(_CHAT)
    dialog.say(user, ONLY_ORDERS)


_Exchange = Callable[[Dialog], None]
_ANY: tuple[tuple[_Exchange, float], ...] = (
    (_order, 0.34),
    (_refuse, 0.16),
    (_order_and_refuse, 0.05),
    (_ask_food, 0.08),
    (_ask_sized, 0.1),
    (_ask_about_menu, 0.06),
    (_leave_domain, 0.1),
)
_AT_FIRST: tuple[tuple[_Exchange, float], ...] = ((_greet, 0.08),)
_WITH_ORDER: tuple[tuple[_Exchange, float], ...] = (
    (_correct, 0.14),
    (_remove, 0.06),
    (_say_yes, 0.05),
)


def _pick_exchange(dialog: Dialog) -> _Exchange:
    choices = list(_ANY)
    if not dialog.turns:
        choices += _AT_FIRST
    if dialog.order:
        choices += _WITH_ORDER
    kinds, weights = zip(*choices, strict=True)
    picked: _Exchange = dialog.rng.choices(kinds, weights)[0]
    return picked
